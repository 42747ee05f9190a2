"""Programs and brokers that are nothing but small scripts."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.tools.homes import PROVEN, Home


def program(file: Path, script: str = "exit 0") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def broker_in(home: Path, version: str) -> Path:
    program(home / "sbin" / "rabbitmq-server")
    (home / "plugins" / f"rabbit-{version}").mkdir(parents=True)
    return home


def unpacked(tools: Path, version: str, home: Home) -> Path:
    """Make what set-up leaves in ``tools`` of a home, and return its folder."""
    place = home.place(tools)
    broker_in(place / f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}", version)
    for name in ("erl", "erlc"):
        program(place / "usr/lib/erlang/bin" / name)
    (place / PROVEN).write_text(str(place), encoding="utf-8")
    return place
