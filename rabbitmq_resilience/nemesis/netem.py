"""Packets between brokers are lost, delayed, slowed down, damaged or repeated, as on a bad network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from rabbitmq_resilience.model.links import nodes_treating
from rabbitmq_resilience.model.packets import By, Disturbance
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.latency import PROVABLE_MS
from rabbitmq_resilience.nemesis.packet_changes import (
    RATE_MAX_KBIT_PER_S,
    PacketChange,
    PacketCorruption,
    PacketDelay,
    PacketDuplication,
    PacketLoss,
    PacketRate,
)
from rabbitmq_resilience.nemesis.packet_faults import ANSWERED_WITHIN_S, PacketInjection
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, TargetError, check_links, fixed_links, resolved_links
from rabbitmq_resilience.nemesis.two_forms import BETWEEN_SCHEMA, as_links, either_of
from rabbitmq_resilience.workload.workload_base import WorkloadBase

Percent = Annotated[float, Field(gt=0, le=100)]
#: Both ways may be slow, and no probe is waited for any longer than ``ANSWERED_WITHIN_S``.
DELAY_MAX_MS = int(ANSWERED_WITHIN_S * 1000 / 2)
#: The fields of which a step has one.
CHANGES = ("loss_percent", "delay_ms", "rate_kbit_per_s", "corrupt_percent", "duplicate_percent")
#: The action on brokers by the kind of disturbance; "disturb" for all other kinds.
_ACTS: Mapping[str, str] = {"loss": "lose_packets", "delay": "delay"}


class Netem(ScheduledFault):
    """``links`` as for latency, between brokers only. A step has one of ``loss_percent``, ``delay_ms``,
    ``rate_kbit_per_s``, ``corrupt_percent`` and ``duplicate_percent``.

    The sender drops ``loss_percent`` of the packets, in hundredths of a percent; its kernel may notice that
    (tc-netem(8)). With ``by: iptables`` the receiver drops them, in whole percents, and no module of the kernel is
    needed. Each packet takes ``delay_ms`` longer, including those that set up connections, which ``latency`` cannot
    delay. ``jitter_ms`` varies that up and down, so some packets overtake others. All packets that one source node
    sends to the links' targets share ``rate_kbit_per_s``. Of ``corrupt_percent`` a bit is wrong: the receiving kernel
    drops packets with a wrong checksum, so the broker sees the same as with a loss. ``duplicate_percent`` are sent
    twice, and TCP discards the second one.

    Only losses with ``by: iptables`` were played on brokers so far. All else needs ``sch_netem`` in the kernel, which
    no machine of this project had. ``suites/test_machines.py`` has a scenario for each, and skips it there."""

    fault: Literal["netem"] = "netem"
    links: str
    loss_percent: Percent | None = None
    delay_ms: Annotated[int, Field(ge=PROVABLE_MS, le=DELAY_MAX_MS)] | None = None
    jitter_ms: Annotated[int, Field(ge=0, le=DELAY_MAX_MS)] = 0
    rate_kbit_per_s: Annotated[int, Field(ge=8, le=RATE_MAX_KBIT_PER_S)] | None = None
    corrupt_percent: Percent | None = None
    duplicate_percent: Percent | None = None
    by: By = "netem"

    model_config = ConfigDict(json_schema_extra=partial(either_of, own="links", other="between", more=BETWEEN_SCHEMA))

    _two_forms = model_validator(mode="before")(as_links)

    acts_on: ClassVar[str] = "packets"
    example: ClassVar[str] = 'links: "zone:a -> zone:c", loss_percent: 5, by: iptables'

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        given = [name for name in CHANGES if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} are" if given else "nothing is"
            raise ValueError(f"{found} done to packets; give one of {', '.join(CHANGES)}, and others in other steps")
        if self.jitter_ms and self.delay_ms is None:
            raise ValueError("jitter_ms varies a delay; give delay_ms, or leave it out")
        if self.by == "iptables" and self.loss_percent is None:
            raise ValueError("iptables only loses packets; leave by out")
        return self

    @property
    def change(self) -> PacketChange:
        """Return what happens to the packets."""
        if self.loss_percent is not None:
            return PacketLoss(self.loss_percent, self.by)
        if self.delay_ms is not None:
            return PacketDelay(self.delay_ms, self.jitter_ms)
        if self.rate_kbit_per_s is not None:
            return PacketRate(self.rate_kbit_per_s)
        if self.corrupt_percent is not None:
            return PacketCorruption(self.corrupt_percent)
        assert self.duplicate_percent is not None, "one of them is given"
        return PacketDuplication(self.duplicate_percent)

    @property
    def disturbance(self) -> Disturbance:
        return self.change.disturbance

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        problems = {}
        if self.by == "iptables" and self.loss_percent is not None and self.loss_percent % 1:
            whole = max(1, round(self.loss_percent))
            text = f"{self.loss_percent:g}: Pumba gives iptables whole percents; write {whole}, or by: netem"
            problems["loss_percent"] = text
        if self.delay_ms is not None and (least_ms := self.delay_ms - self.jitter_ms) < PROVABLE_MS:
            text = f"delay_ms less jitter_ms is {least_ms}; no probe could show less than {PROVABLE_MS} ms"
            problems["jitter_ms"] = text
        try:
            check_links(self.links, topology, workload.queue_names, clients_of=None)
        except TargetError as error:
            problems["links"] = str(error)
        return problems

    def footprint(self, topology: Topology) -> Footprint:
        """Return the packets, and the action at each node whose kernel carries it out."""
        disturbance = self.disturbance
        packets = Footprint(packets=fixed_links(self.links, topology), packets_by=disturbance.by)
        act = _ACTS.get(disturbance.kind, "disturb")
        needs = frozenset({"pumba"} if disturbance.by == "iptables" else {"pumba", "netem"})
        return replace(packets, acts={act: nodes_treating(packets.packets)}, needs=needs)

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PacketInjection:
        return PacketInjection(context, self.change, resolved_links(self.links, resolver), for_s)
