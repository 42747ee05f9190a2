"""Make the lines of a night: the header from this machine and this suite, and a line from each judged run."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import uuid
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from rabbitmq_resilience.extensions.nights.night_file import Header, NightMachine

DISTRIBUTION = "rabbitmq-resilience"
_NO_COMMIT_AFTER_S = 10


def header(
    root: Path, *, name: str | None, machine_name: str | None, driver: str, budget_min: float | None, at: str
) -> Header:
    """Return the header of a night that begins ``at`` a moment. ``root``: the folder whose commit is recorded."""
    return Header(
        night=at,
        name=name,
        suite_version=_suite_version(),
        suite_commit=_commit(root),
        machine=machine(machine_name),
        driver=driver,
        budget_min=budget_min,
    )


def machine(name: str | None = None) -> NightMachine:
    """Return the description of this machine.

    Machines with the same ``name`` count as one machine, such as the runners of a CI service."""
    identity = name or _machine_id()
    return NightMachine(
        cpus=psutil.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        cpu_model=_cpu_model(),
        kernel=platform.release(),
        id=hashlib.sha256(identity.encode()).hexdigest()[:8],
    )


def _suite_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def _commit(root: Path) -> str | None:
    """Return the commit of ``root``, with ``-dirty`` if files were changed; None without git or a repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_NO_COMMIT_AFTER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def with_changes(commit: str | None, root: Path) -> str | None:
    """Return the commit; if it is ``-dirty``, with a short hash of the changes.

    Without the hash, two different dirty checkouts of one commit would look the same."""
    if commit is None or not commit.endswith("-dirty"):
        return commit
    try:
        changes = subprocess.run(
            ["git", "-C", str(root), "diff", "HEAD", "--binary"],
            capture_output=True, timeout=_NO_COMMIT_AFTER_S, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return commit
    return f"{commit}-{hashlib.sha256(changes).hexdigest()[:8]}"


def _machine_id() -> str:
    """Return the machine-id(5), or else the address of a network card."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or str(uuid.getnode())
    except (OSError, ValueError):
        return str(uuid.getnode())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
