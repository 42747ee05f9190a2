"""Packets wait for each other, as on a line of low bandwidth."""

from __future__ import annotations

import math
from statistics import median
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.model.packets import Disturbance
from rabbitmq_resilience.nemesis.packet_faults import PROBES_MAX, PROBES_MIN, PacketCounts, PacketStep

#: The first packet of a connection, with Ethernet's header and TCP's usual options.
PROBE_BITS = 74 * 8
#: About how long all probes of a round together take on the line: long enough not to be mistaken for a busy machine.
ROUND_MS = 400
RATE_MAX_KBIT_PER_S = PROBES_MAX * PROBE_BITS // ROUND_MS


class PacketRate(PacketStep):
    """All packets that one source node sends to the links' targets share ``rate_kbit_per_s``."""

    fault: Literal["packet_rate"] = "packet_rate"
    rate_kbit_per_s: Annotated[int, Field(ge=8, le=RATE_MAX_KBIT_PER_S)]

    example: ClassVar[str] = 'links: "zone:a -> zone:c", rate_kbit_per_s: 2000'

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance("netem", "rate", {"rate": f"{self.rate_kbit_per_s}kbit"})

    @property
    def probes(self) -> int:
        return max(PROBES_MIN, math.ceil(ROUND_MS * self.rate_kbit_per_s / PROBE_BITS))

    @property
    def probes_at_once(self) -> int:
        return self.probes

    def unseen(self, seen: PacketCounts) -> str:
        """Return why the rate does not show. Probes that wait in line are answered one after another, so the middle one
        is answered after half of the round."""
        middle_ms = median([*seen.answers_ms, *[math.inf] * seen.lost])
        return "" if middle_ms >= ROUND_MS / 4 else f"half of the probes were answered within {middle_ms:.0f} ms"
