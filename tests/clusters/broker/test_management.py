"""What errors of the management API tell."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.clusters.broker.management import ApiUnreachable, ManagementApi


def test_who_asks_is_not_told() -> None:
    with (
        ManagementApi("http://127.0.0.1:9", access=Access("somebody", "hunter2")) as api,
        pytest.raises(ApiUnreachable, match=r"http://127.0.0.1:9/api/permissions/a%2Fb/USER is not reachable") as told,
    ):
        api.set_permissions("a/b")
    assert "somebody" not in str(told.value)
