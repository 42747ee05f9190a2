"""Install, start and stop Debian's container engine.

This is the only part of set-up that changes the system: it installs a package, as root, and starts a service that
outlives set-up. It does so only if images are requested and no engine answers, and it says so. ``make engine-stop``
stops the started service; the package stays. Stopping needs no Python package, so ``make clean`` can do it in any
checkout.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rabbitmq_resilience.extensions.setup import debian
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, within_root
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, ProgressLine, run
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

PLACE = TOOLS / "engine"
PID_FILE = "dockerd.pid"
LOG_FILE = "dockerd.log"
LOG_LINES = 15

#: An engine first makes its bridge and firewall rules, and starts containerd: 4 s on an idle machine.
START_S = 120
#: An engine first stops its containers, and gives each 15 s.
STOP_S = 60


def _demand_root() -> None:
    if sys.platform != "linux":
        raise Failed("this is done on Linux only")
    if os.geteuid() != 0:
        raise Failed("this needs root, and you are not root")


def install() -> None:
    """Install Debian's package. Raise ``Failed`` if that cannot be done."""
    _demand_root()
    if not debian.available():
        raise Failed("there is no apt-get here")
    _say("NO CONTAINER ENGINE IS HERE: installing Debian's package docker.io on this system")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "docker.io"]
    try:
        run(command, doing="installing docker.io", env=env)
    except Failed:
        run(["apt-get", "update"], doing="reading the distribution's package lists", env=env)
        run(command, doing="installing docker.io", env=env)


def start(address: str, *, answers: Callable[[], bool]) -> None:
    """Start dockerd at ``address``, in a session of its own, and return once ``answers()`` is true.

    Raise ``Failed`` with the end of its log if it ends, or does not answer in time."""
    _demand_root()
    PLACE.mkdir(parents=True, exist_ok=True)
    log = PLACE / LOG_FILE
    pid = _spawn(["dockerd", f"--host={address}", f"--pidfile={PLACE / PID_FILE}"], log=log)
    line = ProgressLine("starting dockerd")

    def up() -> bool:
        line.show()
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            raise Failed(f"dockerd ended with status {os.waitstatus_to_exitcode(status)}\n{_last_lines(log)}")
        return answers()

    try:
        wait_until(up, timeout_s=START_S, what="an answer of dockerd", poll_s=0.5)
    except WaitTimeout as error:
        os.kill(pid, signal.SIGTERM)
        raise Failed(f"{error}\n{_last_lines(log)}") from error
    finally:
        line.end()
    _say(
        f"A CONTAINER ENGINE WAS STARTED AND GOES ON RUNNING: dockerd, pid {pid}, log {within_root(log)};",
        "`make engine-stop` ends it",
    )


def _spawn(command: list[str], *, log: Path) -> int:
    """Start a process that outlives this one, in a session of its own and with its own files; return its pid."""
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, write, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    )
    return os.posix_spawnp(command[0], command, os.environ, file_actions=files, setsid=True)


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])


def _say(*lines: str) -> None:
    print("", *(f"  !!  {line}" for line in lines), "", sep="\n", flush=True)


def stop() -> str:
    """Stop the engine that set-up started; return a text that says what was done. Raise ``Missing`` if it goes on."""
    pid_file = PLACE / PID_FILE
    pid = running(pid_file)
    if pid is None:
        return "No engine that set-up started is running; others are left alone."
    os.kill(pid, signal.SIGTERM)
    line = ProgressLine("stopping dockerd")

    def gone() -> bool:
        line.show()
        return running(pid_file) is None

    try:
        wait_until(gone, timeout_s=STOP_S, what=f"the end of dockerd, pid {pid}", poll_s=0.5)
    except WaitTimeout as error:
        raise Missing(f"{error}; see {within_root(PLACE / LOG_FILE)}") from error
    finally:
        line.end()
    return f"dockerd, pid {pid}, has ended; its package is still installed."


def running(pid_file: Path) -> int | None:
    """Return the pid in ``pid_file`` if that process is still a dockerd, else None: systems use pids again."""
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
    name, _, fields = state.partition("(")[2].rpartition(")")
    return pid if name == "dockerd" and fields.split()[0] != "Z" else None
