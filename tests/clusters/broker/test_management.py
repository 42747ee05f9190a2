"""What errors of the management API tell, and which alarms it tells of."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi


@pytest.mark.core
def test_who_asks_is_not_named() -> None:
    with (
        ManagementApi("http://127.0.0.1:9", access=Access("somebody", "hunter2")) as api,
        pytest.raises(ApiUnreachable, match=r"http://127.0.0.1:9/api/permissions/a%2Fb/USER ") as told,
    ):
        api.set_permissions("a/b")
    assert "somebody" not in str(told.value)


class Answering(ManagementApi):
    """Of a node that gives these answers by their paths."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__("http://127.0.0.1:9")
        self._answers = answers

    def get(self, path: str, **_: Any) -> Any:
        answer = self._answers[path]
        if isinstance(answer, ApiError):
            raise answer
        return answer


CHECK = "health/checks/alarms"
WITHOUT_CHECK = ApiError(404, "http://h1", "Object Not Found")


def failed(body: str) -> ApiError:
    return ApiError(503, "http://h1", body)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({CHECK: {"status": "ok"}}, set()),
        ({CHECK: failed('{"alarms": [{"node": "b", "resource": "memory"}]}')}, {("b", "memory")}),
        ({CHECK: failed('{"alarms": [{"node": "b", "resource": "disk space"}]}')}, {("b", "disk")}),
        ({CHECK: failed('{"alarms": [{"node": "b", "resource": "of another kind"}]}')}, {("b", "of another kind")}),
        ({CHECK: failed('{"alarms": [{"node": "b", "resource": "file descriptors"}]}')}, set()),
        ({CHECK: WITHOUT_CHECK, "nodes": [{"name": "a"}, {"name": "b", "mem_alarm": False}]}, set()),
        (
            {CHECK: WITHOUT_CHECK, "nodes": [{"name": "a", "disk_free_alarm": True}, {"name": "b", "mem_alarm": True}]},
            {("a", "disk"), ("b", "memory")},
        ),
    ],
)
def test_alarms_are_reported_by_the_health_check_or_by_statistics_of_old(
    answers: dict[str, Any], told: set[tuple[str, str]]
) -> None:
    with Answering(answers) as api:
        assert api.alarms() == told


@pytest.mark.parametrize(
    "answers",
    [
        {CHECK: failed("<html>no server is available</html>")},
        {CHECK: failed('{"status": "failed"}')},
        {CHECK: failed('["alarms"]')},
        {CHECK: failed('{"alarms": ["memory"]}')},
        {CHECK: ApiError(401, "http://h1", "who?"), "nodes": [{"name": "b", "mem_alarm": False}]},
        {CHECK: WITHOUT_CHECK, "nodes": [{"name": "b", "running": True}]},
        {CHECK: WITHOUT_CHECK, "nodes": []},
    ],
)
def test_an_answer_that_reports_no_alarm_is_none_without_alarms(answers: dict[str, Any]) -> None:
    with Answering(answers) as api, pytest.raises(ApiError):
        api.alarms()
