"""RabbitMQ: the user's own, otherwise the distribution's packages unpacked into ``.tools/broker/``."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from rabbitmq_resilience.tools import debian
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_broker
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run
from rabbitmq_resilience.tools.steps import Missing, Step, within_root

PLACE = TOOLS / "broker"
SERVER_PATTERN = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
PACKAGES_WANTED = r"rabbitmq-server|erlang-[a-z0-9-]+"

#: The packaged ``erl`` has its root folder written into it; this finds it from where the script lies,
#: so that the checkout may be moved.
_FIXED_ROOT = re.compile(r'^(\s*)ROOTDIR="?/usr/lib/erlang"?$', re.MULTILINE)
_FOUND_ROOT = r'\1ROOTDIR=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/{up}" && pwd -P)'

_MISSING = """\
A RabbitMQ broker is needed and could not be had:
  RABBITMQ_HOME: not set
  rabbitmq-server on PATH, with Erlang: not there
  packages of the distribution: {why}
How to provide it:
  Debian, Ubuntu   a package source that has rabbitmq-server (it is only downloaded, never installed)
  macOS            brew install rabbitmq
  elsewhere        unpack RabbitMQ's generic build, put Erlang's erl on PATH, and name the folder that holds
                   sbin/rabbitmq-server: make partitions RABBITMQ_HOME=/path/to/rabbitmq_server-3.10.8"""


def found() -> str | None:
    """What a run would use by now. Raises ``Missing`` if a broker is named that cannot be used."""
    try:
        broker = find_broker(tools=TOOLS)
    except ToolMissingError as error:
        if os.environ.get("RABBITMQ_HOME"):
            raise Missing(f"RABBITMQ_HOME is set, but: {error}") from error
        return None
    return f"{broker.version} in {within_root(broker.home)}"


def make() -> str:
    if platform.system() != "Linux" or not debian.available():
        raise Missing(_MISSING.format(why="there is no apt-get here"))
    try:
        debian.provide("rabbitmq-server", wanted=PACKAGES_WANTED, place=PLACE, prove=_moved_and_proven)
    except Failed as error:
        raise Missing(_MISSING.format(why=str(error).replace("\n", "\n    "))) from error
    used = found()
    if used is None:
        raise Missing(_MISSING.format(why=f"they are unpacked in {within_root(PLACE)}, but another broker hides them"))
    return used


def _moved_and_proven(unpacked: Path) -> None:
    make_movable(unpacked / "usr/lib/erlang")
    prove(unpacked)


def make_movable(erlang: Path) -> None:
    """Let the ``erl`` scripts of an Erlang find its root folder. Raises ``Failed`` if one is not of the known form.

    There are two: the one that people start, and beside the Erlang machine the one that it starts further machines by,
    as RabbitMQ does from 3.13 on to ask its peers before it joins them.
    """
    for erl in (erlang / "bin/erl", *erlang.glob("erts-*/bin/erl")):
        found = _FOUND_ROOT.format(up=os.path.relpath(erlang, erl.parent))
        script, replaced = _FIXED_ROOT.subn(found, erl.read_text(encoding="utf-8"))
        if replaced == 0:
            told = f"the script {erl.relative_to(erlang)} of Erlang names no root folder in the way that is known"
            raise Failed(f"{told}; set RABBITMQ_HOME instead")
        erl.write_text(script, encoding="utf-8")


def prove(place: Path) -> None:
    """Start Erlang once, with its crypto library: it says which shared library is missing, if one is."""
    if not any(place.glob(SERVER_PATTERN)):
        raise Failed("the package rabbitmq-server holds no rabbitmq-server script where it is known to be")
    started = "ok = crypto:start(), halt(0)."
    run([place / "usr/lib/erlang/bin/erl", "-noinput", "-eval", started], doing="starting the unpacked Erlang")


STEP = Step("RabbitMQ", found, make)
