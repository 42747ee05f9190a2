"""Provide HAProxy, for topologies with load balancers."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.extensions.setup.packaged import Packaged
from rabbitmq_resilience.tools.distributions import find_haproxy
from rabbitmq_resilience.tools.progress import run

PROGRAM = "haproxy"
UNPACKED = "usr/sbin/haproxy"

#: The program, and those of its libraries that few systems have.
PACKAGES_WANTED = r"haproxy|liblua5\.\d-0|libopentracing.*|libopentelemetry.*"

#: Finds the libraries relative to its own place, so the checkout may be moved. Then HAProxy replaces the shell.
_SCRIPT = """\
#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu*) exec "$here/usr/sbin/haproxy" "$@"
"""


def _starts(unpacked: Path) -> None:
    script = unpacked / PROGRAM
    script.write_text(_SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    run([script, "-v"], doing="starting the unpacked HAProxy")


HAPROXY = Packaged(
    title="HAProxy",
    needed_for="topologies with load balancers",
    package="haproxy",
    variable="HAPROXY",
    wanted=PACKAGES_WANTED,
    program=PROGRAM,
    find=find_haproxy,
    prove=_starts,
)
