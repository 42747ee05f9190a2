"""Finds the broker, Erlang, Toxiproxy, Prometheus and HAProxy to run: the user's own first, then what set-up has
unpacked."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.locations import CHECKOUT, OPTION, TOOLS

#: What fetches what is missing.
SET_UP = "rabbitmq-resilience setup" if CHECKOUT is None else "make setup"
SET_UP_ENGINE = "rabbitmq-resilience setup engine" if CHECKOUT is None else "make engine"

BROKER_ADVICE = (
    f"Run `{SET_UP}`, or give {OPTION}rabbitmq-home (RABBITMQ_HOME) a folder that holds sbin/rabbitmq-server, "
    "or put rabbitmq-server and erl on PATH (macOS: brew install rabbitmq)."
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
    "Install Pumba (its releases at github.com/alexei-led/pumba have it), and put it on PATH or name it in PUMBA."
)


class ToolMissingError(Exception):
    """Something that must be provided was not found; the text says where was looked and what to do."""


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
        """Major and minor version: ``(3, 10)``."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def find_broker(
    rabbitmq_home: Path | None = None, *, environ: Mapping[str, str] | None = None, tools: Path = TOOLS
) -> BrokerHome:
    """The broker named by ``rabbitmq_home``, else by RABBITMQ_HOME, else on PATH, else in ``.tools/broker``.

    Raises ``ToolMissingError``. A home that is named but holds no broker is an error: another version
    would be tested than the one that was asked for.
    """
    environ = os.environ if environ is None else environ
    named = rabbitmq_home or (Path(environ["RABBITMQ_HOME"]) if environ.get("RABBITMQ_HOME") else None)
    if named is not None:
        home = _home_in(named)
        if home is None:
            raise ToolMissingError(f"no broker in {named}: neither it nor what it holds has sbin/rabbitmq-server")
        return _broker(home, environ, tools)
    for candidate in _candidates(environ, tools):
        home = _home_in(candidate)
        if home is not None:
            return _broker(home, environ, tools)
    raise ToolMissingError(f"no RabbitMQ found on PATH or in {tools / 'broker'}. {BROKER_ADVICE}")


def find_toxiproxy(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """The Toxiproxy server named by TOXIPROXY_SERVER, else on PATH, else in ``.tools/bin``."""
    unpacked = tools / "bin" / "toxiproxy-server"
    return _program("toxiproxy-server", "TOXIPROXY_SERVER", unpacked, environ=environ, advice=TOXIPROXY_ADVICE)


def find_prometheus(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """The Prometheus server named by PROMETHEUS, else on PATH, else in ``.tools/prometheus``."""
    unpacked = tools / "prometheus" / "usr" / "bin" / "prometheus"
    return _program("prometheus", "PROMETHEUS", unpacked, environ=environ, advice=PROMETHEUS_ADVICE)


def find_haproxy(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """HAProxy as HAPROXY names it, else on PATH, else in ``.tools/haproxy``."""
    return _program("haproxy", "HAPROXY", tools / "haproxy" / "haproxy", environ=environ, advice=HAPROXY_ADVICE)


def find_pumba(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Path:
    """Pumba as PUMBA names it, else on PATH, else in ``.tools/bin``, where set-up puts none."""
    return _program("pumba", "PUMBA", tools / "bin" / "pumba", environ=environ, advice=PUMBA_ADVICE)


def _program(name: str, variable: str, unpacked: Path, *, environ: Mapping[str, str] | None, advice: str) -> Path:
    environ = os.environ if environ is None else environ
    named = environ.get(variable)
    if named:
        if not os.access(named, os.X_OK):
            raise ToolMissingError(f"{variable} names {named}, which is no program that can be run")
        return Path(named)
    on_path = shutil.which(name, path=environ.get("PATH"))
    candidate = Path(on_path) if on_path else unpacked
    if not os.access(candidate, os.X_OK):
        raise ToolMissingError(f"no {name} found on PATH or in {unpacked.parent}. {advice}")
    return candidate


def _candidates(environ: Mapping[str, str], tools: Path) -> Iterator[Path]:
    script = shutil.which("rabbitmq-server", path=environ.get("PATH"))
    if script:
        yield Path(script).resolve().parent.parent
        # Debian's /usr/sbin/rabbitmq-server wraps what lies here, and switches the user.
        yield Path("/usr/lib/rabbitmq")
    yield tools / "broker"


def _home_in(folder: Path) -> Path | None:
    """The folder itself, or the newest ``rabbitmq_server-*`` in the places where distributions put it."""
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
        return BrokerHome(home, _erlang_bin(home, environ, tools), version)
    raise ToolMissingError(f"{home} has no plugins/rabbit-<version>: the broker's version cannot be told")


def _erlang_bin(home: Path, environ: Mapping[str, str], tools: Path) -> Path:
    """Erlang unpacked beside the broker wins: the versions of the two have to fit."""
    beside = [parent / "erlang" / "bin" for parent in home.parents]
    beside += [parent / "usr" / "lib" / "erlang" / "bin" for parent in home.parents if parent != parent.parent]
    on_path = shutil.which("erl", path=environ.get("PATH"))
    last = [Path(on_path).parent] if on_path else []
    for folder in [*beside, *last, tools / "broker" / "usr" / "lib" / "erlang" / "bin"]:
        if os.access(folder / "erl", os.X_OK) and os.access(folder / "erlc", os.X_OK):
            return folder
    raise ToolMissingError(
        f"RabbitMQ is in {home}, but there is no Erlang (erl with erlc) beside it or on PATH. {BROKER_ADVICE}"
    )


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", name))
