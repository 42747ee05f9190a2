"""Find the broker, Erlang, Toxiproxy, Prometheus, HAProxy and Pumba to run.

The user's own programs come first, then those that set-up has unpacked.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools import erlang_support, homes
from rabbitmq_resilience.tools.locations import CHECKOUT, OPTION, TOOLS

#: The commands that fetch missing programs.
SET_UP = "rabbitmq-resilience setup" if CHECKOUT is None else "make setup"
SET_UP_ENGINE = "rabbitmq-resilience setup engine" if CHECKOUT is None else "make engine"

BROKER_ADVICE = (
    f"Run `{SET_UP}` (macOS: brew install rabbitmq), or give {OPTION}rabbitmq-home (RABBITMQ_HOME) a folder that holds "
    "sbin/rabbitmq-server."
)
TOXIPROXY_ADVICE = (
    f"Run `{SET_UP}`, or name the server in TOXIPROXY_SERVER, or put toxiproxy-server on PATH "
    "(macOS: brew install toxiproxy)."
)
PROMETHEUS_ADVICE = (
    f"Run `{SET_UP}`, or name the server in PROMETHEUS, or put prometheus on PATH (macOS: brew install prometheus)."
)
HAPROXY_ADVICE = (
    f"Run `{SET_UP}`, or name the program in HAPROXY, or put haproxy on PATH (macOS: brew install haproxy)."
)
PUMBA_ADVICE = (
    "Install Pumba (from its releases at github.com/alexei-led/pumba), and put it on PATH or name it in PUMBA."
)


class ToolMissingError(Exception):
    """A needed program was not found; the text says which places were searched and what to do."""


@dataclass(frozen=True)
class BrokerHome:
    """One installed broker: ``home`` holds ``sbin`` and ``plugins``, ``erlang_bin`` holds ``erl`` and ``erlc``."""

    home: Path
    erlang_bin: Path
    version: str

    @property
    def server(self) -> Path:
        return self.home / "sbin" / "rabbitmq-server"

    @property
    def release(self) -> tuple[int, int]:
        """Return major and minor version: ``(3, 10)``."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def find_broker(
    rabbitmq_home: Path | None = None, *, environ: Mapping[str, str] | None = None, tools: Path = TOOLS
) -> BrokerHome:
    """Return the broker named by ``rabbitmq_home``, else by RABBITMQ_HOME, else the first one that set-up has unpacked.

    Raise ``ToolMissingError`` if there is none, or if the named folder holds no broker: otherwise another version than
    the requested one would be tested.
    """
    environ = os.environ if environ is None else environ
    named = rabbitmq_home or named_broker(environ)
    if named is not None:
        home = _home_in(named)
        if home is None:
            by = "" if rabbitmq_home else ", which RABBITMQ_HOME names"
            where = "neither the folder nor those in it hold sbin/rabbitmq-server"
            raise ToolMissingError(f"no broker in {named}{by}: {where}")
        return _broker(home, environ, tools)
    found = brokers_at_home(environ=environ, tools=tools)
    if not found:
        installed = broker_on_path(environ)
        hint = "" if installed is None else f" There is one on PATH, in {installed}, but it is used only if named."
        raise ToolMissingError(f"no RabbitMQ found in {tools / 'brokers'}.{hint} {BROKER_ADVICE}")
    return found[0]


def named_broker(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder that RABBITMQ_HOME names, or None if it is not set."""
    named = (os.environ if environ is None else environ).get("RABBITMQ_HOME")
    return Path(named) if named else None


def brokers_at_home(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Sequence[BrokerHome]:
    """Return the brokers that set-up has unpacked, in the order in which scenarios take them (``tools.homes``).

    On macOS, return the one on PATH, which Homebrew installs. Raise ``ToolMissingError`` for a broker without Erlang.
    """
    environ = {**(os.environ if environ is None else environ), "ERLANG_HOME": ""}  # each broker has its own Erlang
    installed = broker_on_path(environ) if platform.system() == "Darwin" else None
    folders = [_home_in(place) for place in homes.places(tools)] if installed is None else [installed]
    return [_broker(home, environ, tools) for home in folders if home is not None]


def broker_on_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the home of the ``rabbitmq-server`` on PATH, or None if there is none."""
    script = shutil.which("rabbitmq-server", path=(os.environ if environ is None else environ).get("PATH"))
    if script is None:
        return None
    # Debian's /usr/sbin/rabbitmq-server switches the user and then starts the broker in the second folder.
    found = map(_home_in, (Path(script).resolve().parent.parent, Path("/usr/lib/rabbitmq")))
    return next(filter(None, found), None)


def find_toxiproxy(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """Return the Toxiproxy server named by TOXIPROXY_SERVER, else on PATH, else in ``.tools/bin``.

    Raise ``ToolMissingError`` if there is none."""
    unpacked = tools / "bin" / "toxiproxy-server"
    return _program("toxiproxy-server", "TOXIPROXY_SERVER", unpacked, environ=environ, advice=TOXIPROXY_ADVICE)


def find_prometheus(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """Return the Prometheus server named by PROMETHEUS, else on PATH, else in ``.tools/prometheus``.

    Raise ``ToolMissingError`` if there is none."""
    unpacked = tools / "prometheus" / "usr" / "bin" / "prometheus"
    return _program("prometheus", "PROMETHEUS", unpacked, environ=environ, advice=PROMETHEUS_ADVICE)


def find_haproxy(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """Return the HAProxy named by HAPROXY, else on PATH, else in ``.tools/haproxy``.

    Raise ``ToolMissingError`` if there is none."""
    return _program("haproxy", "HAPROXY", tools / "haproxy" / "haproxy", environ=environ, advice=HAPROXY_ADVICE)


def find_pumba(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """Return the Pumba named by PUMBA, else on PATH, else in ``.tools/bin``; set-up does not fetch it.

    Raise ``ToolMissingError`` if there is none."""
    return _program("pumba", "PUMBA", tools / "bin" / "pumba", environ=environ, advice=PUMBA_ADVICE)


def _program(name: str, variable: str, unpacked: Path, *, environ: Mapping[str, str] | None, advice: str) -> Path:
    environ = os.environ if environ is None else environ
    named = environ.get(variable)
    if named:
        if not os.access(named, os.X_OK):
            raise ToolMissingError(f"{variable} names {named}, which cannot be run as a program")
        return Path(named)
    on_path = shutil.which(name, path=environ.get("PATH"))
    candidate = Path(on_path) if on_path else unpacked
    if not os.access(candidate, os.X_OK):
        raise ToolMissingError(f"no {name} found on PATH or in {unpacked.parent}. {advice}")
    return candidate


def _home_in(folder: Path) -> Path | None:
    """Return the folder itself, or the newest ``rabbitmq_server-*`` in the places that distributions use for it."""
    if (folder / "sbin" / "rabbitmq-server").is_file() and (folder / "plugins").is_dir():
        return folder.resolve()
    places = ("rabbitmq_server-*", "lib/rabbitmq_server-*", "usr/lib/rabbitmq/lib/rabbitmq_server-*", "libexec")
    found = [
        home
        for place in places
        for home in folder.glob(place)
        if (home / "sbin" / "rabbitmq-server").is_file() and (home / "plugins").is_dir()
    ]
    return max(found, key=lambda home: _numbers(home.name)).resolve() if found else None


def _broker(home: Path, environ: Mapping[str, str], tools: Path) -> BrokerHome:
    for plugin in (home / "plugins").glob("rabbit-[0-9]*"):
        version = plugin.name.removeprefix("rabbit-").removesuffix(".ez")
        return BrokerHome(home, _erlang_bin(home, version, environ, tools), version)
    raise ToolMissingError(f"{home} has no plugins/rabbit-<version>: the broker's version cannot be determined")


def _erlang_bin(home: Path, version: str, environ: Mapping[str, str], tools: Path) -> Path:
    """Return the folder with the ``erl`` and ``erlc`` for this broker.

    Candidates, in this order: the Erlang that ERLANG_HOME names; the one next to the broker, as their versions must
    fit; the first supported one out of that on PATH and those that set-up has unpacked; the one on PATH. Raise
    ``ToolMissingError`` if there is none.
    """
    named = environ.get("ERLANG_HOME")
    if named:
        if not _is_erlang(Path(named) / "bin"):
            raise ToolMissingError(f"ERLANG_HOME names {named}, which has no bin/erl with bin/erlc")
        return Path(named) / "bin"
    near = [parent / "erlang" / "bin" for parent in home.parents]
    near += [parent / "usr" / "lib" / "erlang" / "bin" for parent in home.parents if parent != parent.parent]
    found = next(filter(_is_erlang, near), None)
    if found is not None:
        return found
    erl = shutil.which("erl", path=environ.get("PATH"))
    on_path = [Path(erl).parent] if erl else []
    unpacked = [place / "usr" / "lib" / "erlang" / "bin" for place in homes.places(tools)]
    known = filter(_is_erlang, [*on_path, *unpacked])
    refused = {folder: erlang_support.refusal(version, _otp_version(folder)) for folder in known}
    for folder in [*(folder for folder, reason in refused.items() if not reason), *filter(_is_erlang, on_path)]:
        return folder
    raise ToolMissingError(
        "\n  ".join(
            [f"RabbitMQ {version} is in {home}, but there is no Erlang (erl with erlc) for it:", *refused.values()]
        )
        + f"\nPut one on PATH or name its folder in {OPTION}erlang (ERLANG_HOME), or play this version in containers: "
        f"{OPTION}driver containers {OPTION}broker {version}"
    )


def _is_erlang(folder: Path) -> bool:
    return os.access(folder / "erl", os.X_OK) and os.access(folder / "erlc", os.X_OK)


def _otp_version(erlang_bin: Path) -> str:
    """Return the version of an Erlang, such as ``27.3.4.1``; empty if it has no version file."""
    files = sorted(((erlang_bin / "erl").resolve().parent.parent / "releases").glob("*/OTP_VERSION"))
    return files[-1].read_text(encoding="utf-8").strip() if files else ""


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", name))
