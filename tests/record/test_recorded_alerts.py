"""Samples of a server become stretches of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.history.history import HistoryError
from rabbitmq_resilience.history.recorded_alerts import (
    ALERTS_FILE,
    Active,
    RecordedAlerts,
    RuleGroup,
    read_alerts,
    write_alerts,
)
from rabbitmq_resilience.history.scraped_alerts import stretches_of
from tests.messages import Messages

RECORD = RecordedAlerts(
    [RuleGroup("brokers", 1.0, ["BrokerDown"], [(1_000_000, 9_000_000)])],
    [Active("BrokerDown", "firing", {"node": "c1"}, 3_000_000, 5_000_000)],
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / ALERTS_FILE
    assert read_alerts(file) is None
    write_alerts(RECORD, file)
    assert str(read_alerts(file)) == str(RECORD)
    assert str(RECORD.active[0]) == "BrokerDown (node c1)"


@pytest.mark.parametrize("text", ["", "{}", '{"groups": [], "active": [{}]}', "[]"])
def test_what_cannot_be_understood_is_reported(tmp_path: Path, text: str, message: Messages) -> None:
    file = tmp_path / ALERTS_FILE
    file.write_text(text, encoding="utf-8")
    with message.of(HistoryError, hide={r"(?s)(cannot be read: ).*": r"\1WHY"}) as caught:
        read_alerts(file)
    assert ALERTS_FILE in str(caught.value)


def slowly(moments: Sequence[int], apart_s: float, looks: Sequence[int]) -> list[tuple[int, int]]:
    parts: list[list[int]] = []
    for at in moments:
        if parts and at - parts[-1][-1] <= apart_s * 1e6 and not any(parts[-1][-1] < look < at for look in looks):
            parts[-1].append(at)
        else:
            parts.append([at])
    return [(part[0], part[-1]) for part in parts]


SECONDS = st.sets(st.integers(0, 40)).map(lambda found: [at * 1_000_000 for at in sorted(found)])


@given(moments=SECONDS, looks=SECONDS, every_s=st.sampled_from([1.0, 2.0, 5.0]))
def test_a_gap_or_an_evaluation_without_a_sample_ends_a_stretch(
    moments: list[int], looks: list[int], every_s: float
) -> None:
    assert list(stretches_of(moments, every_s, looks)) == slowly(moments, 2 * every_s + 3, looks)
