"""Provide RabbitMQ: the named one, otherwise a home for each of several versions in ``.tools/brokers/``.

A home holds packages of one of Debian's releases, unpacked but not installed: the broker and the Erlang that belongs to
it. If this system's C library is older than theirs, it also holds the libraries of that release. Then patchelf changes
the programs of Erlang to use these libraries; no other program sees them.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from functools import partial
from pathlib import Path

from rabbitmq_resilience.extensions.setup import debian, patchelf
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.distributions import (
    BrokerHome,
    ToolMissingError,
    broker_on_path,
    brokers_at_home,
    find_broker,
    named_broker,
)
from rabbitmq_resilience.tools.homes import DISTRIBUTION, HOMES, PROVEN, Home
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, megabytes, run

SERVER_PATTERN = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
PACKAGES_WANTED = r"rabbitmq-server|erlang-[a-z0-9-]+"
#: The packages of the libraries with which the programs of Erlang are linked.
LIBRARIES_WANTED = "|".join(
    (r"libc6|libgcc-s1|libstdc\+\+6|libtinfo6|libncursesw6", r"libssl3(t64)?|libsctp1|libsystemd0|libzstd1|zlib1g")
)
ERLANG = "usr/lib/erlang"

#: The packaged ``erl`` has its root folder as a constant; the replacement finds it relative to the script.
_FIXED_ROOT = re.compile(r'^(\s*)ROOTDIR="?/usr/lib/erlang"?$', re.MULTILINE)
_FOUND_ROOT = r'\1ROOTDIR=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/{up}" && pwd -P)'

_MISSING = """\
RabbitMQ {has} could not be provided:
  RABBITMQ_HOME: not set
  packages ({release}): {why}
How to provide a broker:
  Debian, Ubuntu   a source of Debian's packages for apt (they are only downloaded, never installed)
  macOS            brew install rabbitmq
  elsewhere        unpack RabbitMQ's generic build, put Erlang's erl on PATH, and name the folder that holds
                   sbin/rabbitmq-server: make partitions RABBITMQ_HOME=/path/to/rabbitmq_server-4.2.2"""


def found(home: Home) -> str | None:
    """Return the broker in this home, or the named one that replaces it; None if the home has to be made.

    Raise ``Missing`` if a broker is named that cannot be used.
    """
    try:
        if named_broker() is not None:
            return f"not needed, as RABBITMQ_HOME names {_shown(find_broker())}"
        if platform.system() == "Darwin" and (installed := brokers_at_home(tools=TOOLS)):
            return f"not needed, as Homebrew has {_shown(installed[0])}"
        if not home.is_there(TOOLS):
            return None
        return _shown(_of(home))
    except ToolMissingError as error:
        raise Missing(str(error)) from error


def make(home: Home) -> str:
    """Unpack a home, and start its Erlang once; return its version, place and size. Raise ``Missing`` if that fails."""
    if platform.system() != "Linux" or not debian.available():
        raise _missing(home, "there is no apt-get here")
    place = home.place(TOOLS)
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        _unpack(home, place)
        prove(place)
    except Failed as error:
        shutil.rmtree(place, ignore_errors=True)
        raise _missing(home, str(error).replace("\n", "\n    ")) from error
    (place / PROVEN).write_text(str(place), encoding="utf-8")
    size_bytes = sum(file.lstat().st_size for file in place.rglob("*"))
    return f"{_shown(_of(home))}, {megabytes(size_bytes)}"


def _of(home: Home) -> BrokerHome:
    return find_broker(home.place(TOOLS), environ={**os.environ, "ERLANG_HOME": ""})


def _unpack(home: Home, place: Path) -> None:
    own = home.release in {DISTRIBUTION.release, debian.own_release()}
    bundled = not own and _is_newer_than_this(home)
    wanted = f"{PACKAGES_WANTED}|{LIBRARIES_WANTED}" if bundled else PACKAGES_WANTED
    debian.unpack("rabbitmq-server", wanted=wanted, into=place, release=None if own else home.release)
    if not (place / ERLANG).is_dir():
        raise Failed(f"the packages hold no {ERLANG}")
    make_movable(place / ERLANG)
    if bundled:
        patchelf.use_libraries(place / ERLANG, of=place / "usr/lib")


def _is_newer_than_this(home: Home) -> bool:
    """Return whether the C library of that release is newer than this system's, or may be newer."""
    _, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    here = tuple(int(part) for part in re.findall(r"\d+", version))
    return home.moves or home.glibc > here


def _missing(home: Home, why: str) -> Missing:
    installed = broker_on_path()
    hint = "" if installed is None else f"\n  (There is one on PATH: RABBITMQ_HOME={installed})"
    return Missing(_MISSING.format(has=home.has.partition(":")[0], release=home.release, why=why) + hint)


def _shown(broker: BrokerHome) -> str:
    return f"{broker.version} in {within_root(broker.home)}"


def make_movable(erlang: Path) -> None:
    """Let the ``erl`` scripts of an Erlang find its root folder. Raise ``Failed`` if one has not the known form.

    There are two scripts: people start one; the other is next to the Erlang machine, which starts further machines by
    it. RabbitMQ does that from 3.13 on, to ask its peers before it joins them.
    """
    for erl in (erlang / "bin/erl", *erlang.glob("erts-*/bin/erl")):
        found = _FOUND_ROOT.format(up=os.path.relpath(erlang, erl.parent))
        script, replaced = _FIXED_ROOT.subn(found, erl.read_text(encoding="utf-8"))
        if replaced == 0:
            why = f"the script {erl.relative_to(erlang)} of Erlang sets no root folder in the known form"
            raise Failed(f"{why}; set RABBITMQ_HOME instead")
        erl.write_text(script, encoding="utf-8")


def prove(place: Path) -> None:
    """Start Erlang once, with its crypto library. Raise ``Failed`` with its output, which names missing libraries."""
    if not any(place.glob(SERVER_PATTERN)):
        raise Failed("the package rabbitmq-server holds no rabbitmq-server script at its known place")
    started = "ok = crypto:start(), halt(0)."
    run([place / "usr/lib/erlang/bin/erl", "-noinput", "-eval", started], doing="starting the unpacked Erlang")


def steps() -> tuple[SetupTask, ...]:
    """Return a step for each home that can exist on this system. The one of Debian's moving release is optional."""
    here = HOMES if debian.own_release() is not None else (DISTRIBUTION,)
    return tuple(
        SetupTask(f"RabbitMQ {home.has}", partial(found, home), partial(make, home), optional=home.moves)
        for home in here
    )
