"""Check that the cluster becomes whole again after the last fault is healed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.gaps import UNSEEN_S_MAX, UNWATCHED_S_MAX, gaps, lasting_s
from rabbitmq_resilience.checkers.lateness import of_this_machine
from rabbitmq_resilience.checkers.starved import starved
from rabbitmq_resilience.checkers.times import Period, periods, times
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import RecoveryEvent, SampleEvent

#: A moment, and in words what was missing then; empty if nothing was.
Observation = tuple[int, str]

#: By queue: when it delivered none of its ready messages.
Silent = Mapping[str, Sequence[Period]]

#: How long the cluster must have been whole at the end. What is there in one sample only may be there by chance.
WHOLE_S_MIN = 2.0
#: How much later than nodes their queues are seen to be whole, as queues are sampled less often.
SEEN_LATER_S = 2.0
#: A queue that is listed as ill again within this time was not just slow to answer.
SLOW_TO_ANSWER_EVERY_S = 10.0
#: If something is missing in more samples than this, and in more than this part of them, it is missing repeatedly.
SLOW_TO_ANSWER_MAX, SLOW_TO_ANSWER_PART_MAX = 2, 0.05


class Recovery(InvariantSpec):
    """The cluster recovers within ``within_s`` from the moment at which the last fault was healed, and stays whole.
    Then all nodes are up, no node reports a partition, and every queue has a leader, delivers, and has as many members
    online as were declared. What becomes ill again has not recovered. There is one exception: a queue that is listed as
    ill once, and not again for 10 s, was slow to answer, unless that happens in more than two samples and in more than
    one of twenty.

    A queue does not deliver if none of its messages arrives for 30 s while it has ready messages, and its consumers are
    connected and hold none. If no node reports the number of ready messages meanwhile, that is UNKNOWN. A run that
    waited for recovery in vain, confirms and deliveries included, has not recovered either. Mirrors that exist and are
    not synchronised are reported, not judged.

    The verdict is UNKNOWN if recovery is late, but not twice as late as allowed, and this machine may be the cause: a
    broker that came last waited for a processor for long enough to explain the delay, or other programs took much of
    this machine. If something is still missing at the end of the record, not twice as late, the verdict is UNKNOWN only
    if such a broker also waited for half of the time or more.

    If nothing was seen ill after the allowed time, the verdict is UNKNOWN in these cases: the cluster was seen whole
    for less than 2 s at the end; its queues were ill in the last sample alone; or, since the cluster was whole and had
    to be, its nodes were not observed for 6 s or its queues for 10 s. Gaps before the last fault was healed do not
    matter. If the nodes were not observed for 6 s after it, nothing is INVALID, as this machine may have stood still.
    If no broker listed queues after it, and a node was not up in the last observation, the queues count as not listed.
    Exclusive queues go with their consumers, so runs with them are observed until the drain begins.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun", "watched"})

    within_s: Annotated[float, Field(gt=0)] = 60

    @property
    def least_phases(self) -> Mapping[str, float]:
        """Return how long the recovery phase must be: a wait that is given up before the bound cannot be judged."""
        return {"recovery_s": self.within_s}

    def check(self, history: History) -> Finding:
        facts = history.facts
        if "recovery" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the run has no recovery phase")
        start_us = facts.phases["recovery"] if facts.last_healed_us is None else facts.last_healed_us
        end_us: float = facts.phases.get("end", facts.events[-1].t_us + 1)
        if any(queue.consumer is not None for queue in facts.queues):
            end_us = facts.phases.get("drain", end_us)  # exclusive queues go with their consumers after that
        known = frozenset(facts.cluster.nodes if facts.cluster else ())
        looks = [(t, states) for t, states in facts.node_states if start_us <= t < end_us]
        # a sample without all nodes can show what is ill, but not that nothing is
        nodes = [(t, ill) for t, states in looks if (ill := ill_nodes(states)) or states.keys() >= known]
        samples = [e for e in facts.of_kind(SampleEvent) if start_us <= e.t_us < end_us]
        if not nodes or not (samples or nodes[-1][1]):
            return Finding(Verdict.UNKNOWN, "nodes or queues were not observed after the last fault was healed")
        if not samples:  # no broker could list queues
            samples = [SampleEvent(t_us=t, queues={}) for t, _ in nodes]
        queues, slow = _of_queues(facts.queues, samples)
        splits = [(e.t_us, ill_partitions(e.partitions)) for e in samples]
        begun_us = min(start_us, facts.phases.get("steady", start_us))  # a queue may have stopped before the healing
        keeping = starved(history, (begun_us, end_us))
        consuming = [event.t_us for event in samples if event.t_us < facts.consumers_gone_us]
        served = [(t_us, keeping_queues(keeping, t_us)) for t_us in consuming or [samples[0].t_us]]
        unwatched = gaps(facts.all_looked_at_us, (start_us, end_us), longer_than_s=UNWATCHED_S_MAX)
        believed = [t for t, _ in queues]  # samples that are not believed do not count as observations
        unseen = [unwatched, gaps(believed, (start_us, end_us), longer_than_s=UNSEEN_S_MAX)]
        demanded_s = seconds(end_us - start_us)
        coverage = Coverage(round(demanded_s - max(map(lasting_s, unseen)), 3), demanded_s)
        given_up = next((e for e in facts.of_kind(RecoveryEvent) if not e.complete), None)
        if given_up is not None:
            finding = self._given_up(facts, keeping, start_us, given_up)
        else:
            behind = sum(row.get("behind", 0) for row in samples[-1].queues.values())
            unlooked = list(periods(times(itertools.chain(*unseen))))
            perhaps = starved(history, (begun_us, end_us), perhaps=True)
            watched = _Watched(
                start_us, end_us, (nodes, queues, splits, served), unlooked, keeping, perhaps, behind, slow
            )
            finding = self._finding(facts, watched)
        return _held_to(unwatched, facts, replace(finding, coverage=coverage))

    def _given_up(self, facts: Facts, silent: Silent, start_us: int, given_up: RecoveryEvent) -> Finding:
        """Return the finding for a run that waited in vain: for what is judged here, and also for confirms and
        deliveries."""
        waited_s = seconds(given_up.t_us - start_us)
        summary = f"not recovered {waited_s:g} s after healing: {given_up.detail}"
        certain = waited_s >= self.within_s
        excuse = self._excuse(facts, silent, (start_us, given_up.t_us), came=False) if certain else ""
        verdict = Verdict.INVALID if certain and not excuse else Verdict.UNKNOWN
        numbers = {"recovered_after_s": None, "watched_s": waited_s}
        examples = (f"{given_up.detail} at {facts.at(given_up.t_us)}",)
        return Finding(verdict, f"{summary}; {excuse}" if excuse else summary, numbers, examples)

    def _excuse(self, facts: Facts, silent: Silent, span_us: Period, *, came: bool) -> str:
        nodes = _last_to_come(facts, silent, *span_us)
        return of_this_machine(facts, nodes, *span_us, allowed_s=self.within_s, came=came)

    def _finding(self, facts: Facts, watched: _Watched) -> Finding:
        start_us, recovered_us = watched.start_us, watched.recovered_us
        examples = tuple(f"{text} at {facts.at(t)}" for t, text in map(_last_ill, watched.seen) if text)
        watched_s = seconds(
            min(observations[-1][0] for observations in watched.seen[:2]) - start_us
        )  # all nodes, all queues
        if recovered_us is None:
            before = watched.without_last_look.recovered_us if watched.ill_in_one_look else None
            if before is not None and seconds(before - start_us) > self.within_s:
                return self._finding(facts, watched.without_last_look)
            missing = "; ".join(observations[-1][1] for observations in watched.seen if observations[-1][1])
            certain = watched_s >= self.within_s and not watched.ill_in_one_look
            excuse = (
                self._excuse(facts, watched.silent, (start_us, start_us + watched_s * 1e6), came=False)
                if certain
                else ""
            )
            verdict = Verdict.INVALID if certain and not excuse else Verdict.UNKNOWN
            summary = "; ".join(filter(None, [f"not recovered {watched_s:g} s after healing: {missing}", excuse]))
            return Finding(verdict, summary, {"recovered_after_s": None, "watched_s": watched_s}, examples)
        after_s = seconds(recovered_us - start_us)
        late = after_s > self.within_s
        excuse = self._excuse(facts, watched.silent, (start_us, recovered_us), came=True) if late else ""
        due_us = start_us + self.within_s * 1e6
        doubt = "" if watched.last_ill_us > due_us else watched.doubt(facts, recovered_us, due_us=due_us)
        remark = f"; {watched.behind} mirrors were not synchronised even at the end" if watched.behind else ""
        if excuse:
            remark += f"; {excuse}"
        summary = f"whole {after_s:g} s after the last fault was healed; allowed are {self.within_s:g} s{remark}"
        return Finding(
            Verdict.UNKNOWN if excuse or doubt else Verdict.INVALID if late else Verdict.VALID,
            f"{doubt}; in the observed time, {summary}" if doubt else summary,
            {"recovered_after_s": after_s, "watched_s": watched_s, "mirrors_behind": watched.behind},
            examples if late else (),
        )


@dataclass(frozen=True)
class _Watched:
    """The observations after the healing. ``seen``: those of nodes, queues, partitions and deliveries. ``unseen``: the
    times in which one of these was not observed. ``silent``: when queues delivered none of their ready messages.
    ``perhaps_starved``: the same, also if no sample has the number of ready messages."""

    start_us: int
    end_us: float
    seen: tuple[list[Observation], ...]
    unseen: Sequence[Period]
    silent: Silent
    perhaps_starved: Silent
    behind: int
    slow_at_end: bool

    @property
    def recovered_us(self) -> int | None:
        """Return the start of the last unbroken row of samples in which all was there; None if it ends ill."""
        whole = [t for observations in self.seen if (t := _whole_us(observations)) is not None]
        return max(whole) if len(whole) == len(self.seen) else None

    @property
    def last_ill_us(self) -> int:
        """Return when something was last seen to be missing, and 0 if nothing was."""
        return max(t for observations in self.seen for t in [0, *(t for t, missing in observations if missing)])

    @property
    def ill_in_one_look(self) -> bool:
        """Return whether only queues are ill at the end, and only in the last sample: they may be slow to answer."""
        nodes, _, splits, served = self.seen
        others = (observations[-1][1] for observations in (nodes, splits, served))
        return not any(others) and self.slow_at_end

    @property
    def without_last_look(self) -> _Watched:
        """Return the observations without the last sample of the queues."""
        nodes, queues, *others = self.seen
        return replace(self, seen=(nodes, queues[:-1], *others))

    def doubt(self, facts: Facts, recovered_us: int, *, due_us: float) -> str:
        """Return why it is not known whether the cluster was whole from ``recovered_us`` on, or was whole by
        ``due_us``; empty if it is known."""
        for start, end in self.unseen:
            unlooked = f"there is no sample of all nodes and queues from {facts.at(start)} to {facts.at(end)}"
            if end > max(recovered_us, min(due_us, self.end_us - 1)):
                return f"{unlooked}, after they were whole"
            if end == recovered_us and start <= due_us < end:
                return f"{unlooked}, when they became whole"
        for name, spans in self.perhaps_starved.items():
            for start, end in spans:
                if recovered_us <= due_us < end:
                    silence = f"{name} delivered nothing from {facts.at(start)} to {facts.at(end)}"
                    return f"{silence}, and not every sample shows how many messages were ready"
        held_s = seconds(self.end_us - recovered_us)
        if recovered_us <= due_us and held_s < WHOLE_S_MIN:
            return f"all was there for only {held_s:g} s before the record ended (make phases.settled_s longer)"
        return ""


def _held_to(unwatched: Sequence[Period], facts: Facts, finding: Finding) -> Finding:
    """Return the finding, but UNKNOWN instead of INVALID if the nodes were not observed for some time: a machine that
    stands still makes everything late."""
    if finding.verdict is not Verdict.INVALID or not unwatched:
        return finding
    start, end = unwatched[0]
    unlooked = f"the observer did not look at all nodes from {facts.at(start)} to {facts.at(end)}"
    return replace(finding, verdict=Verdict.UNKNOWN, summary=f"{unlooked}; in the observed time, {finding.summary}")


def _last_to_come(facts: Facts, silent: Silent, start_us: float, end_us: float) -> frozenset[str]:
    """Return the nodes that recovery was waiting for in the end.

    These are the nodes that were not up in the last sample that misses one, or the nodes of what was ill after that
    (members of queues, partitioned nodes). If nothing was ill, they are all nodes.
    """
    all_nodes = frozenset(facts.cluster.nodes if facts.cluster else ())
    members = {queue.name: frozenset(queue.members) for queue in facts.queues}
    away = [(t, frozenset(n for n in all_nodes if states.get(n) != "up")) for t, states in facts.node_states]
    ill = [
        (min(end, end_us), members[name]) for name, spans in silent.items() for start, end in spans if start < end_us
    ]
    for event in facts.of_kind(SampleEvent):
        ill += [(event.t_us, members[queue.name]) for queue in facts.queues if ill_queues([queue], event.queues)]
        ill += [(event.t_us, frozenset((node, *peers))) for node, peers in event.partitions.items()]
    gone = [(t, nodes) for t, nodes in away if nodes and start_us <= t <= end_us]
    gone_us, last = gone[-1] if gone else (-math.inf, all_nodes)
    later = [(t, nodes) for t, nodes in ill if max(start_us, gone_us + SEEN_LATER_S * 1e6) < t <= end_us]
    later_us = max((t for t, _ in later), default=math.inf)
    return frozenset(node for t, nodes in later if t == later_us for node in nodes) or last


def ill_nodes(states: Mapping[str, str]) -> str:
    """Return in words which nodes are not up; empty if all are."""
    return _listed(f"{node} is {state}" for node, state in states.items() if state != "up")


def ill_queues(declared: Iterable[QueueFacts], seen: Mapping[str, Mapping[str, Any]]) -> str:
    """Return in words which queues are not listed, have no leader or lack members; empty if all are whole."""
    ill = []
    for queue in declared:
        row = seen.get(queue.name)
        if row is None:
            ill.append(f"{queue.name} is not listed")
        elif not row["leader"]:
            ill.append(f"{queue.name} has no leader")
        elif row["online"] < len(queue.members):
            ill.append(f"{queue.name} has {row['online']} of {len(queue.members)} members online")
    return _listed(ill)


def ill_partitions(partitions: Mapping[str, Sequence[str]]) -> str:
    """Return in words which nodes report partitions; empty if none does."""
    return _listed(f"{node} says that it is partitioned from {' '.join(peers)}" for node, peers in partitions.items())


def keeping_queues(starved_us: Silent, t_us: float) -> str:
    """Return in words which queues deliver nothing at that moment; empty if none."""
    now = [name for name, spans in starved_us.items() if any(start <= t_us <= end for start, end in spans)]
    return _listed(f"{name} delivers none of its ready messages" for name in now)


def _listed(parts: Iterable[str]) -> str:
    lines = list(parts)
    return ", ".join(lines[:EXAMPLES_MAX]) + (f" and {len(lines) - EXAMPLES_MAX} more" if lines[EXAMPLES_MAX:] else "")


def _of_queues(declared: Sequence[QueueFacts], samples: Sequence[SampleEvent]) -> tuple[list[Observation], bool]:
    """Return what was missing of the queues in each sample that can be believed for all of them, and whether all that
    was missing in the last sample may just be slow to answer."""
    ill: dict[str, dict[int, str]] = {}
    for place, sample in enumerate(samples):
        for queue in declared:
            if text := ill_queues([queue], sample.queues):
                ill.setdefault(queue.name, {})[place] = text
    texts: dict[int, list[str]] = {}
    doubted: set[int] = set()
    last, are_slow = len(samples) - 1, True
    for of_queue in ill.values():
        slow = _slow_to_answer([(sample.t_us, of_queue.get(place, "")) for place, sample in enumerate(samples)])
        are_slow = are_slow and (last not in of_queue or last in slow)
        for place, text in of_queue.items():
            if place not in slow or place == last:
                texts.setdefault(place, []).append(text)
            else:
                doubted.add(place)
    kept = (place for place in range(len(samples)) if place in texts or place not in doubted)
    return [(samples[place].t_us, _listed(texts.get(place, ()))) for place in kept], are_slow


def _slow_to_answer(observations: list[Observation]) -> frozenset[int]:
    """Return the places of samples in which something was missing, while nothing was in all other samples for a while.
    A member that is slow to answer is listed as missing. The first sample is believed. All samples are believed if that
    happens in more than two samples, and in more than one of twenty."""
    ill = [(place, t_us) for place, (t_us, missing) in enumerate(observations) if missing]
    alone = {
        place
        for place, t_us in ill
        if place and not any(0 < abs(t - t_us) < SLOW_TO_ANSWER_EVERY_S * 1e6 for _, t in ill)
    }
    seldom = len(alone) <= max(SLOW_TO_ANSWER_MAX, SLOW_TO_ANSWER_PART_MAX * len(observations))
    return frozenset(alone if seldom else ())


def _last_ill(observations: list[Observation]) -> Observation:
    return next((seen for seen in reversed(observations) if seen[1]), observations[0])


def _whole_us(observations: list[Observation]) -> int | None:
    """Return the start of the last unbroken row of moments at which nothing was missing; None if it ends ill."""
    whole_us = None
    for t_us, missing in observations:
        whole_us = None if missing else whole_us if whole_us is not None else t_us
    return whole_us
