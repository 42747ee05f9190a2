"""Describe the lines of rabbitmq.conf that a topology states, and evaluate some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import StringConstraints

SettingName = Annotated[str, StringConstraints(pattern=r"^[a-z][\w$-]*(\.[\w$/-]+)*$", max_length=200)]
SettingValue = bool | int | float | Annotated[str, StringConstraints(pattern=r"^[^\s#][^\r\n#]*$", max_length=500)]
Settings = Mapping[str, SettingValue]

_DETECTOR_POLL = "raft.adaptive_failure_detector.poll_interval"
#: Brokers from 4.1 on refuse clients whose frames are smaller.
FRAME_MAX_BYTES_MIN = 8192
#: The name of this feature in ``sut.broker.versions.FEATURES``.
SMALL_FRAMES = f"a frame_max under {FRAME_MAX_BYTES_MIN}"


def detector_poll_s(settings: Settings) -> float | None:
    """Return the poll interval of Raft's failure detector in seconds; None if the settings do not state it."""
    stated_ms = settings.get(_DETECTOR_POLL)
    return None if stated_ms is None else float(stated_ms) / 1000


def setting_needs(settings: Settings) -> frozenset[str]:
    """Return the broker features that these settings require, as named in ``sut.broker.versions.FEATURES``."""
    frame_max = settings.get("frame_max")
    return frozenset({SMALL_FRAMES} if isinstance(frame_max, int) and 0 < frame_max < FRAME_MAX_BYTES_MIN else ())
