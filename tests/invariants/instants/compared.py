"""What the checkers say of a case beside what the reference says of it."""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.checkers.metadata import Metadata
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Finding, History, Verdict
from tests.invariants.instants.case import TICKS_PER_S, Act, Case
from tests.invariants.instants.lost import Lost
from tests.invariants.literal import cluster, deliver, event, fault, history, phases, publish, queues, us

MARGIN_S = 1.0


class Reference(Lost):
    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.within = 10 + round(MARGIN_S * TICKS_PER_S)


def seconds(tick: float) -> float:
    return tick / TICKS_PER_S


def step(number: int, act: Act) -> list[object]:
    states = {"injecting": act.injecting, "injected": act.injected, "healing": act.healing, "healed": act.healed}
    links = [(min(pair), max(pair)) for pair in sorted(act.cut, key=sorted)]
    return [
        e
        for state, tick in states.items()
        for e in fault(
            seconds(tick),
            seconds(tick),
            step=number,
            down=sorted(act.down),
            cut=links,
            slow=sorted(act.slow),
            slow_s=seconds(act.slow_ticks),
            starved=sorted(act.starved),
            sudden=act.sudden,
            intermittent=act.intermittent,
            may_serve=act.serves,
            states=(state,),
        )
    ]


def recorded(case: Case) -> History:
    end_s = seconds(case.ticks)
    events = [
        cluster(case.nodes, mode=case.mode, preferred=sorted(case.preferred)),
        phases(steady=0, chaos=1, recovery=end_s - 2, drain=end_s, end=end_s + 1),
        queues("q1", kind=case.kind, members=sorted(case.members)),
        *(step(n, act) for n, act in enumerate(case.acts)),
        *(event(seconds(t), "nodes", states=states) for t, states in case.looks.items()),
    ]
    known: dict[str, list[str]] = {node: [] for node in case.nodes}
    for n, (node, tick, nodes) in enumerate(case.declared):
        at_s = seconds(tick + 0.5)
        events += [event(at_s, "declaration", item=f"queue {n}", node=node, state=s) for s in ("asked", "created")]
        for each in nodes:
            known[each].append(f"queue {n}")
    events.append(event(end_s + 0.5, "metadata", nodes=known))
    rows = [
        {
            **publish(m.sequence, seconds(m.sent + 0.5)),
            "outcome_us": us(seconds(m.confirmed + 0.5)) + 1,
            "node": case.nodes.index(m.node),
        }
        for m in case.messages
    ]
    received = [deliver(sequence, end_s + n / 1000) for n, sequence in enumerate(case.received)]
    return history(rows, received, events)


def findings(case: Case) -> Mapping[str, Finding]:
    """Of each checker that the reference has an answer to."""
    run = recorded(case)
    return {
        "partition_mode": PartitionMode(margin_s=MARGIN_S).check(run),
        "no_loss": NoLoss().check(run),
        "order": Order().check(run),
        "metadata": Metadata().check(run),
    }


def answers(reference: Reference) -> Mapping[str, int | bool]:
    """The same from the reference: how many things are wrong, or whether any is."""
    return {
        "partition_mode": reference.mode_is_broken(),
        "no_loss": reference.lost_without_permit(),
        "order": reference.overtaken_without_permit(),
        "metadata": reference.metadata_is_broken(),
    }


def told(found: Mapping[str, Finding]) -> Mapping[str, int | bool]:
    """What ``answers`` has to be like."""
    wrong = {name: finding.verdict is Verdict.INVALID for name, finding in found.items()}
    counted = {name: found[name].numbers[number] for name, number in (("no_loss", "lost"), ("order", "overtaken"))}
    return {**wrong, **{name: int(count or 0) for name, count in counted.items()}}
