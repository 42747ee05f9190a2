"""A shell of this machine that stands in for one of a container."""

from __future__ import annotations

import subprocess

from rabbitmq_resilience.extensions.attached.machine import MachineError


def run_in_shell(script: str, *arguments: str) -> str:
    """Return what ``script`` prints. It gets as long as it needs: a time limit would poll with sleeps."""
    done = subprocess.run(["sh", "-s", "--", *arguments], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout
