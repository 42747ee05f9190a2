"""What the lock of a cluster is called at its brokers."""

from __future__ import annotations

import os

import pytest

from rabbitmq_resilience.extensions.attached.lock import our_name

NOBODY = 1_987_654_321


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is in containers that do not run as root."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    assert our_name().startswith(f"user {NOBODY}@")


def test_a_user_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    assert our_name().startswith("somebody@")
