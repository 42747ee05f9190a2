"""The nemesis: it plays a schedule of faults, proves each injection, and heals in any case."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.nemesis.conditions import Scene
from rabbitmq_resilience.nemesis.fault import FaultContext, Injection, LateProof, Proof
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.targets import Resolver, TargetError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

POLL_S = 0.05
#: How often a condition is looked at. A look may cost the brokers an answer.
LOOK_EVERY_S = 0.2
#: How long a step waits for its condition until people are shown that it does.
WAIT_SHOWN_AFTER_S = 5.0
#: A fault that lasts no longer than this is timed from the moment at which it is in place, as injecting takes some ms.
#: So is a fault that brokers take time to begin.
BLIP_S = 2.0
LEADER_KNOWN_WITHIN_S = 15.0

AnyProof = TypeVar("AnyProof", bound=Proof | LateProof)
Answer = TypeVar("Answer", str | None, tuple[str, ...])

#: Write one event to the history: ``record("fault", step=..., ...)``, see ``history.events``.
Record = Callable[..., object]


def _not_shown(_: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Nemesis:
    """Play ``schedule`` on ``context``. Each step has its own thread, so faults may overlap. What a step draws depends
    only on ``seed`` and its number, so no step changes another's choice. ``show`` gets sentences for people; steps call
    it from their threads."""

    schedule: Sequence[AnyFault]
    context: FaultContext
    record: Record
    seed: int
    chaos_s: float
    show: Callable[[str], None] = _not_shown

    def play(self, check: Callable[[], None]) -> None:
        """Play all steps. Return when every step has ended and, if all are timed, not before ``chaos_s``.

        ``check`` is called now and then. If it raises, or on KeyboardInterrupt, all steps end early: they are healed
        before the exception is raised again."""
        started = time.monotonic()
        interrupted = threading.Event()
        healed = _Healed()
        with ThreadPoolExecutor(max(1, len(self.schedule)), thread_name_prefix="nemesis") as pool:
            steps = [
                pool.submit(_PlayedStep(self, i, step, started, interrupted, healed).play)
                for i, step in enumerate(self.schedule)
            ]
            try:
                while not all(step.done() for step in steps) or self._left_s(started):
                    interrupted.wait(POLL_S)
                    check()
                for step in steps:
                    step.result()
            except BaseException:
                interrupted.set()  # leaving the pool waits until every step is healed
                raise

    def _left_s(self, started: float) -> float:
        timed_only = all(step.at_s is not None for step in self.schedule)
        return max(0.0, started + self.chaos_s - time.monotonic()) if timed_only else 0.0


class _Healed:
    """When each step was seen to be healed. The step's own thread writes it, and those of other steps read it."""

    def __init__(self) -> None:
        self._at_s: dict[int, float] = {}

    def record(self, step: int) -> None:
        self._at_s[step] = time.monotonic()

    def since_s(self, step: int) -> float | None:
        at_s = self._at_s.get(step)
        return None if at_s is None else time.monotonic() - at_s


@dataclass
class _PlayedStep:
    nemesis: Nemesis
    index: int
    step: AnyFault
    started: float
    interrupted: threading.Event
    healed: _Healed
    effect: Effect = field(default_factory=Effect)

    def play(self) -> None:
        missed = self._await_beginning()
        if missed is not None:
            self._journal("skipped", missed)
            return
        resolver = Resolver(
            self.nemesis.context.cluster.topology,
            self._leader_of,
            random.Random(f"{self.nemesis.seed}/{self.index}"),  # noqa: S311 - a seeded choice, no secret
            self._followers_of,
        )
        with self.nemesis.context.of_one_step(self.index, for_s=self.step.for_s) as context:
            try:
                injection = self.step.prepare(context, resolver, for_s=self.step.for_s)
            except TargetError as error:
                self._journal("skipped", str(error))
                return
            self._play(injection)

    def _play(self, injection: Injection) -> None:
        self.effect = injection.effect
        late: LateProof | None = None
        try:
            late = self._inject(injection)
        finally:
            healed = self._heal(injection)
        if healed and late is not None:
            self._journal_proof("", _attempt(late))
        if healed:
            proof = _attempt(injection.prove_healed)
            self._journal_proof("heal_", proof)
            if proof.proven:
                self.healed.record(self.index)

    def _leader_of(self, queue: str) -> str | None:
        return self._await_answer(self.nemesis.context.observer.leader_of, queue, what="leader")

    def _followers_of(self, queue: str) -> tuple[str, ...]:
        return self._await_answer(self.nemesis.context.observer.followers_of, queue, what="followers")

    def _await_answer(self, ask: Callable[[str], Answer], queue: str, *, what: str) -> Answer:
        """Ask until there is an answer, for a limited time. Return the last one, perhaps empty.

        While a node is cut off, brokers take their time to report it.
        """
        with suppress(WaitTimeout):
            wait_until(
                lambda: bool(ask(queue)) or self.interrupted.is_set(),
                timeout_s=LEADER_KNOWN_WITHIN_S,
                what=f"the {what} of {queue}",
            )
        return ask(queue)

    def _await_beginning(self) -> str | None:
        """Wait for the step's time or condition. Return None once it begins, or why it never will."""
        when = self.step.when
        if when is None:
            assert self.step.at_s is not None
            left_s = self.started + self.step.at_s - time.monotonic()
            return "the run was ended before" if self.interrupted.wait(max(0.0, left_s)) else None
        last_s = self.started + self.nemesis.chaos_s - self.step.for_s
        scene = Scene(self.nemesis.context.observer, self.nemesis.context.cluster, self.healed.since_s)
        shown_s: float | None = time.monotonic() + WAIT_SHOWN_AFTER_S
        while not when.holds(scene):
            if shown_s is not None and time.monotonic() >= shown_s:
                shown_s = None
                self.nemesis.show(f"step {self.index} ({self.step.fault}) waits for its condition: {when}")
            if time.monotonic() > last_s:
                return f"its condition never came true: {when}"
            if self.interrupted.wait(LOOK_EVERY_S):
                return "the run was ended before its condition came true"
        return None

    def _inject(self, injection: Injection) -> LateProof | None:
        """Inject, prove and wait. Return the late proof if the fault can be proven only after healing, else None."""
        self._journal("injecting")
        self.nemesis.context.at_work.begin(self.index, self.effect)
        begun = time.monotonic()
        try:
            injection.inject()
        except Exception as error:  # a failed injection counts as unproven and must be healed
            self._journal("unproven", f"the injection failed: {error}")
            return None
        self._journal("injected")
        at_least_s = self.step.for_s if self.step.begins_within_s else min(self.step.for_s, BLIP_S)
        ends = max(begun + self.step.for_s, time.monotonic() + at_least_s)
        proof = _attempt(lambda: injection.prove(timeout_s=max(0.1, ends - time.monotonic())))
        if isinstance(proof, Proof):
            self._journal_proof("", proof)
        self.interrupted.wait(max(0.0, ends - time.monotonic()))
        return None if isinstance(proof, Proof) else proof

    def _heal(self, injection: Injection) -> bool:
        try:
            self._journal("healing")
        finally:  # even if the event cannot be written
            healed = self._try_to_heal(injection)
        return healed

    def _try_to_heal(self, injection: Injection) -> bool:
        try:
            injection.heal()
        except Exception as error:  # the other steps must heal too; the verdict says what failed
            self.nemesis.context.at_work.end(self.index, healed=False)
            self._journal("heal_unproven", f"the healing failed: {error}")
            return False
        self.nemesis.context.at_work.end(self.index, healed=True)
        self._journal("healed")
        return True

    def _journal_proof(self, prefix: str, proof: Proof) -> None:
        self._journal(f"{prefix}{'proven' if proof.proven else 'unproven'}", proof.detail)

    def _journal(self, state: str, detail: str = "") -> None:
        self.nemesis.record(
            "fault", step=self.index, fault=self.step.fault, state=state, effect=self.effect, detail=detail
        )


def _attempt(prove: Callable[[], AnyProof]) -> AnyProof | Proof:
    try:
        return prove()
    except Exception as error:  # a proof that fails is no proof
        return Proof(False, f"could not be looked at: {error}")
