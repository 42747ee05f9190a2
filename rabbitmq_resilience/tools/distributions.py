"""Find the broker, Erlang, Toxiproxy, Prometheus and HAProxy to run: the user's own first, then what set-up has
unpacked."""

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

#: What fetches what is missing.
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
    """Return the broker named by ``rabbitmq_home``, else by RABBITMQ_HOME, else the first one at home.

    Raises ``ToolMissingError``. A home that is named but holds no broker is an error: another version
    would be tested than the one that was asked for.
    """
    environ = os.environ if environ is None else environ
    named = rabbitmq_home or named_broker(environ)
    if named is not None:
        home = _home_in(named)
        if home is None:
            by = "" if rabbitmq_home else ", which RABBITMQ_HOME names"
            raise ToolMissingError(f"no broker in {named}{by}: neither it nor what it holds has sbin/rabbitmq-server")
        return _broker(home, environ, tools)
    found = brokers_at_home(environ=environ, tools=tools)
    if not found:
        installed = broker_on_path(environ)
        hint = "" if installed is None else f" On PATH is one in {installed}, which is taken only where it is named."
        raise ToolMissingError(f"no RabbitMQ found in {tools / 'brokers'}.{hint} {BROKER_ADVICE}")
    return found[0]


def named_broker(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder that RABBITMQ_HOME names; None where it names nothing."""
    named = (os.environ if environ is None else environ).get("RABBITMQ_HOME")
    return Path(named) if named else None


def brokers_at_home(*, environ: Mapping[str, str] | None = None, tools: Path = TOOLS) -> Sequence[BrokerHome]:
    """Return the brokers that set-up has unpacked, in the order in which scenarios take them (``tools.homes``).

    On macOS it is the one on PATH, as Homebrew installs it. Raises ``ToolMissingError`` for a broker without Erlang.
    """
    environ = {**(os.environ if environ is None else environ), "ERLANG_HOME": ""}  # each has its own
    installed = broker_on_path(environ) if platform.system() == "Darwin" else None
    folders = [_home_in(place) for place in homes.places(tools)] if installed is None else [installed]
    return [_broker(home, environ, tools) for home in folders if home is not None]


def broker_on_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the home of the ``rabbitmq-server`` on PATH; None where there is none."""
    script = shutil.which("rabbitmq-server", path=(os.environ if environ is None else environ).get("PATH"))
    if script is None:
        return None
    # Debian's /usr/sbin/rabbitmq-server wraps what lies in the second, and switches the user.
    found = map(_home_in, (Path(script).resolve().parent.parent, Path("/usr/lib/rabbitmq")))
    return next(filter(None, found), None)


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
        return BrokerHome(home, _erlang_bin(home, version, environ, tools), version)
    raise ToolMissingError(f"{home} has no plugins/rabbit-<version>: the broker's version cannot be told")


def _erlang_bin(home: Path, version: str, environ: Mapping[str, str], tools: Path) -> Path:
    """Return the folder with ``erl`` and ``erlc`` that this broker is to run on.

    It is what ERLANG_HOME names; else what lies next to the broker, as the versions of the two have to fit; else the
    first one that RabbitMQ supports with this version, of that on PATH and those that set-up has unpacked; else that on
    PATH.
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
    """Return the version of an Erlang, such as ``27.3.4.1``; empty where it does not say."""
    files = sorted(((erlang_bin / "erl").resolve().parent.parent / "releases").glob("*/OTP_VERSION"))
    return files[-1].read_text(encoding="utf-8").strip() if files else ""


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", name))
