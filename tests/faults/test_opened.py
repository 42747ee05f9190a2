"""What a step of a schedule opens is closed when the step is over, however it went."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault import FaultContext, LateProof, Proof
from rabbitmq_resilience.nemesis.nemesis import Nemesis, Record
from rabbitmq_resilience.nemesis.silence import Silence
from rabbitmq_resilience.sut.broker.handshake import AMQP_GREETING, Probe

LINK = Link("publisher:0", "a1")
PROVEN = Proof(True, "seen")
METHODS = ["prepare", "inject", "prove", "heal", "prove_healed", "late"]


class Broken(Exception):
    pass


@dataclass
class Listener:
    """A listener that accepts and never answers, as the only link of a cluster."""

    address: tuple[str, int]
    opened: list[Probe]

    def probe(self, link: Link, *, direct: bool = False) -> Probe:  # noqa: ARG002 - the protocol's
        self.opened.append(Probe.to(self.address, AMQP_GREETING, timeout_s=5))
        return self.opened[-1]


@dataclass
class Step:
    """Probes a link, and fails in one of its methods."""

    fails_in: str
    at_s: float = 0.0
    when: None = None
    for_s: float = 0.05
    fault: str = "probing"
    begins_within_s: float = 0.0

    def prepare(self, context: FaultContext, _resolver: object, *, for_s: float) -> Step:  # noqa: ARG002 - the protocol's
        self.silence = Silence(context, [LINK])
        self._reach("prepare")
        return self

    @property
    def effect(self) -> Effect:
        return Effect()

    def inject(self) -> None:
        self.silence.begin()
        self._reach("inject")

    def prove(self, *, timeout_s: float) -> Proof | LateProof:  # noqa: ARG002 - the protocol's
        self._reach("prove")
        return self._prove_late if self.fails_in == "late" else PROVEN

    def _prove_late(self) -> Proof:
        self._reach("late")
        return PROVEN

    healed: bool = False

    def heal(self) -> None:
        self.healed = True
        self._reach("heal")

    def prove_healed(self) -> Proof:
        self._reach("prove_healed")
        return PROVEN

    def _reach(self, method: str) -> None:
        if method == self.fails_in:
            raise Broken(method)


@pytest.fixture
def links() -> Iterator[Listener]:
    """All that it opened was closed in the end: a connection over the proxy, and one past it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listener = Listener(listening.getsockname(), [])
        yield listener
    assert [probe.fileno() for probe in listener.opened] == [-1, -1]


def nemesis(links: Listener, step: Any, record: Record) -> Nemesis:
    cluster: Any = SimpleNamespace(links=links, state=lambda _: "up", topology=None)
    cluster.lasting = lambda _: cluster
    unused: Any = SimpleNamespace(leader_of=None, followers_of=None)
    return Nemesis((step,), FaultContext(cluster, unused, unused), record, seed=1, chaos_s=0)


@pytest.mark.core
@pytest.mark.parametrize("fails_in", ["nothing", *METHODS])
def test_a_step_closes_what_it_opened(links: Listener, fails_in: str) -> None:
    step = Step(fails_in)
    with pytest.raises(Broken) if fails_in == "prepare" else nullcontext():
        nemesis(links, step, lambda *_, **__: None).play(lambda: None)
    assert step.healed == (fails_in != "prepare")


@pytest.mark.core
def test_a_step_is_healed_even_if_that_cannot_be_journalled(links: Listener) -> None:
    def record(_kind: str, *, state: str, **_: Any) -> None:
        if state == "healing":
            raise Broken("the disk is full")

    step = Step("nothing")
    with pytest.raises(Broken, match="disk"):
        nemesis(links, step, record).play(lambda: None)
    assert step.healed
