"""Define the options of the plugin, and read them from the command line, the environment or pytest's configuration.

An option ``x-y`` is ``--resilience-x-y`` on the command line, ``RABBITMQ_RESILIENCE_X_Y`` in the environment and
``resilience_x_y`` in pytest's configuration. The first of these that has it counts. The prefix is needed as other
plugins have options named ``--driver`` and ``--seed``. A repository of fault files may offer short names too, as this
project does (``add_short_names`` in its conftest).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.tools.locations import CHECKOUT

REPEATS_MAX = 1000
#: Both names of each driver; runs are recorded under the second one.
DRIVER_NAMES: Mapping[str, str] = {"processes": "local", "local": "local", "containers": "docker", "docker": "docker"}

ANNOTATORS = ("github", "none")

#: Options that are offered without the prefix as well, unless another plugin has an option of that name.
ALSO_UNPREFIXED = ("fault-file", "recheck", "check-only")


def driver_name(text: str) -> str:
    """Return the recorded name of a driver. Raise ArgumentTypeError if there is no such driver."""
    if text not in DRIVER_NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is no driver; there are {', '.join(DRIVER_NAMES)}")
    return DRIVER_NAMES[text]


def repeats(text: str) -> int:
    """Return a number of runs. Raise ArgumentTypeError if ``text`` is none."""
    if not text.isdecimal() or not 0 < int(text) <= REPEATS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of runs from 1 to {REPEATS_MAX}")
    return int(text)


def seed(text: str) -> int:
    """Return a seed. Raise ArgumentTypeError if no scenario takes ``text`` as its seed."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to {2**63 - 1}")
    return int(text)


def annotator(text: str) -> str:
    """Return the reader of annotations. Raise ArgumentTypeError if there is no such reader."""
    if text not in ANNOTATORS:
        raise argparse.ArgumentTypeError(f"{text!r} reads no annotations; write one of {', '.join(ANNOTATORS)}")
    return text


def minutes(text: str) -> float:
    """Return a number of minutes. Raise ArgumentTypeError if ``text`` is none."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 7 * 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes over 0, up to a week")
    return found


@dataclass(frozen=True)
class Option:
    """An option of the plugin. A ``lasting`` one may also be set in pytest's configuration or in the environment."""

    name: str
    help: str
    type: Callable[[str], Any] = str
    default: Any = None
    lasting: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dest(self) -> str:
        return f"resilience_{self.name.replace('-', '_')}"

    @property
    def variable(self) -> str:
        return f"RABBITMQ_{self.dest.upper()}"

    @property
    def is_flag(self) -> bool:
        return self.fields.get("action") == "store_true"

    def add(self, group: pytest.OptionGroup | pytest.Parser, *, prefix: str) -> None:
        fields = dict(self.fields) if self.is_flag else {"type": self.type, **self.fields}
        group.addoption(f"--{prefix}{self.name}", dest=self.dest, default=None, help=self.help, **fields)


OPTIONS: Sequence[Option] = (
    Option("driver", "run brokers in processes (local) or containers (docker)", driver_name, "local", True),
    Option("cluster", "play on the existing cluster that this file describes", Path, None, True),
    Option("broker", "version or series of the broker, or its image (the first at home that fits)", lasting=True),
    Option("rabbitmq-home", "an unpacked RabbitMQ (RABBITMQ_HOME, or one at home)", Path, None, True),
    Option("erlang", "an unpacked Erlang for the broker (ERLANG_HOME, or the one that fits)", Path, None, True),
    Option(
        "each-home",
        "play each scenario on each broker at home that it is for, if none is named",
        fields={"action": "store_true"},
    ),
    Option("runs-dir", "the folder for run directories (reports/runs)", Path, Path("reports/runs"), True),
    Option("nights-dir", "the folder for the file of each night (none is written)", Path, None, True),
    Option("night-name", "the name of this night, such as the name of a CI job", lasting=True),
    Option("machine", "count this machine as the same as others of that name", lasting=True),
    Option("summary", "append a summary in Markdown to this file", Path),
    Option(
        "annotations", "github or none: show what broke as annotations (github in its Actions)", annotator, None, True
    ),
    Option("budget-min", "play what fits into this number of minutes, least recently played first", minutes),
    Option("repeat", "play each scenario this often, and show rates (1)", repeats, 1),
    Option("seed", "the seed of everything random (default: the scenario's own)", seed),
    Option(
        "check-only",
        "check every scenario, and play none; with --cluster: list all that each would do there",
        fields={"action": "store_true"},
    ),
    Option("fault-file", "play this fault file, and nothing else", Path, fields={"action": "append"}),
    Option("recheck", "judge this run directory again, and play nothing", Path, fields={"action": "append"}),
)
BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("resilience", "RabbitMQ resilience")
    for option in OPTIONS:
        option.add(group, prefix="resilience-")
        if option.lasting:
            parser.addini(option.dest, option.help, default=None)


def add_short_names(parser: pytest.Parser) -> None:
    """Add all options without the prefix, for the conftest of a repository of fault files."""
    group = parser.getgroup("resilience", "RabbitMQ resilience")
    for option in OPTIONS:
        option.add(group, prefix="")


def add_unprefixed(parser: pytest.Parser, *, called_in: Path) -> None:
    """Add ``ALSO_UNPREFIXED`` without the prefix, once all other plugins have added their options.

    In a checkout, add all options so, as pytest does not load the checkout's conftest for a file outside of it.
    """
    names = BY_NAME if CHECKOUT is not None and called_in.is_relative_to(CHECKOUT) else ALSO_UNPREFIXED
    for option in map(BY_NAME.__getitem__, names):
        asked = f"--{option.name}" if option.is_flag else f"--{option.name}=."
        with suppress(pytest.UsageError):  # another plugin has the option
            _, unknown = parser.parse_known_and_unknown_args([asked])
            if unknown:
                option.add(parser, prefix="")


def value(config: pytest.Config, name: str) -> Any:
    """Return an option's value from the command line, the environment or pytest's configuration, else its default.

    Raise pytest.UsageError if the value is not valid.
    """
    found, _ = _said(config, name)
    return found


def _said(config: pytest.Config, name: str) -> tuple[Any, Path]:
    """Return an option's value, and the folder to which a path in it is relative.

    The folder is that in which pytest was called, if the value is from there, or that of pytest's configuration file.
    """
    option, called_in = BY_NAME[name], config.invocation_params.dir
    configured_in = called_in if config.inipath is None else config.inipath.parent
    given = config.getoption(option.dest, default=None)
    if given is not None:
        return given, called_in
    if not option.lasting:
        return option.default, configured_in
    for where, text, base in (
        (option.variable, os.environ.get(option.variable), called_in),
        (option.dest, _configured(config, option), configured_in),
    ):
        if text:
            try:
                return option.type(text), base
            except argparse.ArgumentTypeError as error:
                raise pytest.UsageError(f"{where}: {error}") from None
    return option.default, configured_in


def _configured(config: pytest.Config, option: Option) -> str | None:
    found: str | None = config.getini(option.dest)
    return found


def folder(config: pytest.Config, name: str) -> Path | None:
    """Return the path that an option names, or None if it names none."""
    named, base = _said(config, name)
    return None if named is None else Path(base / named)


def driver(config: pytest.Config) -> str:
    """Return the name of the driver on which scenarios are played."""
    name: str = "attached" if value(config, "cluster") else value(config, "driver")
    return name


def runs_folder(config: pytest.Config) -> Path:
    """Return the folder for run directories."""
    found = folder(config, "runs-dir")
    assert found is not None, "the option has a default"
    return found
