"""RabbitMQ: the user's own, otherwise the distribution's packages unpacked into ``.tools/broker/``."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

from setup import debian
from setup.progress import Failed, run
from setup.steps import TOOLS, Missing, Step, within_root
from topologies.distributions import ToolMissingError, find_broker

PLACE = TOOLS / "broker"
SERVER_PATTERN = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
PACKAGES_WANTED = r"rabbitmq-server|erlang-[a-z0-9-]+"

#: The packaged ``erl`` has its root folder written into it; this finds it from where the script lies,
#: so that the checkout may be moved.
_FIXED_ROOT = re.compile(r'^(\s*)ROOTDIR="?/usr/lib/erlang"?$', re.MULTILINE)
_FOUND_ROOT = r'\1ROOTDIR=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd -P)'

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
    partial = PLACE.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        debian.unpack("rabbitmq-server", wanted=PACKAGES_WANTED, into=partial)
        make_movable(partial / "usr/lib/erlang/bin/erl")
        prove(partial)
    except Failed as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise Missing(_MISSING.format(why=str(error).replace("\n", "\n    "))) from error
    shutil.rmtree(PLACE, ignore_errors=True)
    partial.rename(PLACE)
    used = found()
    if used is None:
        raise Missing(_MISSING.format(why=f"they are unpacked in {within_root(PLACE)}, but another broker hides them"))
    return used


def make_movable(erl: Path) -> None:
    """Let the ``erl`` script find its root folder. Raises ``Failed`` if it is not of the known form."""
    script, replaced = _FIXED_ROOT.subn(_FOUND_ROOT, erl.read_text(encoding="utf-8"))
    if replaced == 0:
        raise Failed("the erl script names no root folder in the way that is known; set RABBITMQ_HOME instead")
    erl.write_text(script, encoding="utf-8")


def prove(place: Path) -> None:
    """Start Erlang once, with its crypto library: it says which shared library is missing, if one is."""
    if not any(place.glob(SERVER_PATTERN)):
        raise Failed("the package rabbitmq-server holds no rabbitmq-server script where it is known to be")
    started = "ok = crypto:start(), halt(0)."
    run([place / "usr/lib/erlang/bin/erl", "-noinput", "-eval", started], doing="starting the unpacked Erlang")


STEP = Step("RabbitMQ", found, make)
