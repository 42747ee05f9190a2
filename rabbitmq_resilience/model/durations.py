"""Durations that several rooms share."""

from __future__ import annotations

#: A silent peer is noticed after 0.75 to 1.25 times ``net_ticktime`` (Erlang, kernel application), a closed connection
#: and a dead process at once.
TICKS_MIN = 0.75
TICKS_MAX = 1.25
