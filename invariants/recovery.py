"""After the last fault is healed the cluster becomes whole again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from invariants.facts import Facts, QueueFacts
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict, seconds
from reports.events import Event

#: What was seen at a moment to be missing; empty if nothing was.
Observation = tuple[int, str]


class Recovery(InvariantSpec):
    """From the moment at which the last fault was healed it takes at most ``within_s`` until all nodes are up,
    none says that it is partitioned from another, and every queue has a leader and as many members online as were
    declared, for good: what falls ill again has not recovered (a queue that is listed as ill once only was slow to
    tell). A run that waited for recovery in vain, confirms and deliveries included, has not recovered either. Mirrors
    that are there and not synchronised are told, not judged."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "history_whole"})

    within_s: Annotated[float, Field(gt=0)] = 60

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        if "recovery" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the run has no recovery phase")
        start_us = facts.phases["recovery"] if facts.last_healed_us is None else facts.last_healed_us
        end_us = facts.phases.get("end", float("inf"))
        nodes = [(t, ill_nodes(states)) for t, states in facts.node_states if start_us <= t < end_us]
        samples = [e for e in facts.of_kind("sample") if start_us <= e["t_us"] < end_us]
        if not nodes or not samples:
            return Finding(Verdict.UNKNOWN, "nodes or queues were not observed after the last fault was healed")
        queues = _believed([(e["t_us"], ill_queues(facts.queues, e["queues"])) for e in samples])
        splits = [(e["t_us"], ill_partitions(e.get("partitions", {}))) for e in samples]
        given_up = next((e for e in facts.of_kind("recovery") if not e["complete"]), None)
        if given_up is not None:
            return self._given_up(facts, start_us, given_up)
        behind = sum(row.get("behind", 0) for row in samples[-1]["queues"].values())
        return self._finding(facts, start_us, (nodes, queues, splits), behind)

    def _given_up(self, facts: Facts, start_us: int, given_up: Event) -> Finding:
        """The run waited in vain, for what is looked at here and for confirms and deliveries besides."""
        waited_s = seconds(given_up["t_us"] - start_us)
        summary = f"not recovered {waited_s:g} s after healing: {given_up['detail']}"
        verdict = Verdict.INVALID if waited_s >= self.within_s else Verdict.UNKNOWN
        numbers = {"recovered_after_s": None, "watched_s": waited_s}
        return Finding(verdict, summary, numbers, (f"{given_up['detail']} at {facts.at(given_up['t_us'])}",))

    def _finding(self, facts: Facts, start_us: int, watched: Sequence[list[Observation]], behind: int) -> Finding:
        """``watched``: what was seen of the nodes, of the queues, and of partitions."""
        examples = tuple(f"{text} at {facts.at(t)}" for t, text in map(_last_ill, watched) if text)
        whole = [t for observations in watched if (t := _whole_us(observations)) is not None]
        recovered_us = max(whole) if len(whole) == len(watched) else None
        watched_s = seconds(min(observations[-1][0] for observations in watched) - start_us)
        if recovered_us is None:
            told = "; ".join(observations[-1][1] for observations in watched if observations[-1][1])
            verdict = Verdict.INVALID if watched_s >= self.within_s else Verdict.UNKNOWN
            summary = f"not recovered {watched_s:g} s after healing: {told}"
            return Finding(verdict, summary, {"recovered_after_s": None, "watched_s": watched_s}, examples)
        after_s = seconds(recovered_us - start_us)
        late = after_s > self.within_s
        told = f"; {behind} mirrors were not synchronised even at the end" if behind else ""
        return Finding(
            Verdict.INVALID if late else Verdict.VALID,
            f"whole {after_s:g} s after the last fault was healed; allowed are {self.within_s:g} s{told}",
            {"recovered_after_s": after_s, "watched_s": watched_s, "mirrors_behind": behind},
            examples if late else (),
        )


def ill_nodes(states: Mapping[str, str]) -> str:
    return _listed(f"{node} is {state}" for node, state in states.items() if state != "up")


def ill_queues(declared: Iterable[QueueFacts], seen: Mapping[str, Mapping[str, Any]]) -> str:
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
    return _listed(f"{node} says that it is partitioned from {' '.join(peers)}" for node, peers in partitions.items())


def _listed(parts: Iterable[str]) -> str:
    lines = list(parts)
    return ", ".join(lines[:EXAMPLES_MAX]) + (f" and {len(lines) - EXAMPLES_MAX} more" if lines[EXAMPLES_MAX:] else "")


def _believed(observations: list[Observation]) -> list[Observation]:
    """Without what was missing once, after all was there and before all is, or nothing more is told: a member that is
    slow to answer is listed as one that is not there."""
    kept = observations[:1]
    for before, now, after in zip(observations, observations[1:], [*observations[2:], (0, "")], strict=False):
        if not now[1] or before[1] or after[1]:
            kept.append(now)
    return kept


def _last_ill(observations: list[Observation]) -> Observation:
    return next((seen for seen in reversed(observations) if seen[1]), observations[0])


def _whole_us(observations: list[Observation]) -> int | None:
    """When nothing was missing for the first time of the last unbroken row of such; None if it ends ill."""
    whole_us = None
    for t_us, missing in observations:
        whole_us = None if missing else whole_us if whole_us is not None else t_us
    return whole_us
