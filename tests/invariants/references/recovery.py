"""Judge whether a cluster became whole again by looking at each look at it."""

from __future__ import annotations

import random
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import SampleEvent
from tests.invariants.literal import cluster, deliver, event, history, load, phases, publish, queues, us
from tests.invariants.references.common import END_S, NODES, Away, checked, look_events, machine_events, step_events
from tests.invariants.references.recovery_drawn import Case, drawn
from tests.invariants.references.served import longest_gap_s

#: For how long it must be seen whole at the end, and may not be looked at: its nodes, its queues.
WHOLE_S, NODES_S, QUEUES_S, SLOW_S, SILENT_S = 2.0, 6.0, 10.0, 10.0, 30.0
#: No case is drawn whose verdict changes where bounds are so much longer or shorter.
ROUGH_S = 2.0


def generated(source: random.Random) -> Case:
    """Draw a case whose verdict is not near the edge of a bound."""
    while True:
        case = drawn(source)
        if len({judged(case, slack_s) for slack_s in (-ROUGH_S, 0.0, ROUGH_S)}) == 1:
            return case


def is_blind(case: Case, what: str, at_s: float) -> bool:
    """Whether no one looked at something at that moment."""
    return any(one == what and from_s <= at_s < to_s for one, from_s, to_s in case.blind)


def looks(case: Case, node: str) -> list[tuple[float, bool]]:
    """Return when a node was looked at, and whether it was up."""
    seen = []
    for half in range(int(2 * END_S)):
        at_s = half / 2
        if not is_blind(case, "nodes", at_s) and not is_blind(case, node, at_s):
            seen.append((at_s, not any(a.node == node and a.from_s <= at_s < a.to_s for a in case.aways)))
    return seen


def asked_s(case: Case) -> list[float]:
    """Return when a node was asked for the queues."""
    return [at + 0.3 for at in range(int(END_S)) if not is_blind(case, "queues", at + 0.3)]


def ill_kinds(case: Case, queue: int, at_s: float) -> set[str]:
    """Return what is wrong with a queue in a sample."""
    return {ill.kind for ill in case.ills if ill.queue == queue and ill.from_s <= at_s < ill.to_s}


def recorded(case: Case) -> History:
    """Return the history of a case."""
    names = [f"q{number + 1}" for number in range(case.queues)]
    events: list[Any] = [cluster(), queues(*names), phases(), load(10, 2), *step_events(case.steps)]
    # The states of nodes that are not looked at are left out; where no one looked at any there is no event.
    gaps = [Away(what, from_s, to_s, "unseen") for what, from_s, to_s in case.blind if what in NODES]
    plain = look_events([*sorted(case.aways, key=lambda one: one.from_s), *gaps])
    events += [one for one in plain if not is_blind(case, "nodes", (one.t_us - us(0)) / 1e6) and one.states]
    for at_s in asked_s(case):
        rows: dict[str, Any] = {}
        parted: dict[str, list[str]] = {}
        for number, name in enumerate(names):
            wrong = ill_kinds(case, number, at_s)
            row = {"ready": 0, "unacked": 0, "leader": "a1", "members": 3, "online": 3}
            row |= {"leader": None} if "leader" in wrong else {}
            row |= {"online": 2} if "online" in wrong else {}
            row |= {"members": 2, "online": 2} if "shrunk" in wrong else {}
            row |= {"ready": 7} if "silent" in wrong else {}
            if "missing" not in wrong:
                rows[name] = row
            if "partitioned" in wrong:
                parted = {"b1": ["c1"]}
        events.append(SampleEvent(t_us=us(at_s), queues=rows, partitions=parted, node="a1"))
    sent, received = [], []
    for number in range(case.queues):
        for worker in (f"publisher-{number}", f"consumer-{number}"):
            events.append(event(0, "worker", worker=worker, event="started"))
            events.append(event(0.1, "worker", worker=worker, event="connected", node="a1"))
        for sequence in range(180):
            at_s = sequence / 2
            sent.append(publish(sequence, at_s, publisher=number, queue=number))
            if "silent" not in ill_kinds(case, number, at_s + 0.1):
                received.append(deliver(sequence, at_s + 0.1, publisher=number, queue=number, consumer=number))
    if case.waited:
        events.append(event(89, "recovery", complete=case.waited == "complete", detail=""))
    events.append(event(94, "drain", complete=True, confirmed=1, received=1, unconsumed=0, detail=""))
    return history(sent, received, [*events, *machine_events(case.machine)])


def verdict(case: Case) -> str:
    """Return the verdict by the text."""
    return judged(case, 0.0)


def judged(case: Case, slack_s: float) -> str:
    """Return the verdict with bounds that are longer by some time."""
    asked = asked_s(case)
    if case.waited == "in vain" or not _is_slow_at_end(case, _healed_s(case)):
        return _judged(case, slack_s, END_S)
    # What was broken without the last look stays so; else it may have been slow to tell.
    return "INVALID" if _judged(case, slack_s, asked[-1]) == "INVALID" else "UNKNOWN"


def _healed_s(case: Case) -> float:
    """Return when the last fault was healed."""
    return max([step.end_s for step in case.steps if not step.skipped], default=70.0)


def _judged(case: Case, slack_s: float, asked_until_s: float) -> str:
    """Return the verdict with bounds that are longer by some time; later samples of queues are left out."""
    healed_s = _healed_s(case)
    ends = _ends(case, healed_s, slack_s, asked_until_s)
    whole_s = max(first for _, first, _ in ends)
    ill_s = max(last for last, _, _ in ends)
    in_vain = case.waited == "in vain"
    ever = whole_s < END_S and not in_vain
    answers = {"VALID"}
    bound_s = case.within_s + slack_s
    # Where it was ill to the end, it is late only if there was the time.
    late_s = (whole_s if ever else 89 if in_vain else END_S) - healed_s
    is_surely_late = ill_s - healed_s > bound_s or (in_vain and late_s > bound_s)
    if late_s > bound_s:
        surely = is_surely_late or not ever
        answers.add(_late(case, _last_to_come(ends), late_s, bound_s, ever) if surely else "UNKNOWN")
    elif not ever:
        answers.add("UNKNOWN")
    # "If the nodes were not observed for 6 s after it, nothing is INVALID": all of them.
    times = [[at_s for at_s, _ in looks(case, node)] for node in NODES]
    if "INVALID" in answers and any(longest_gap_s(one, healed_s, END_S) > NODES_S - slack_s for one in times):
        answers = {"UNKNOWN"}
    if not is_surely_late:
        if not all(_is_seen(one, whole_s, healed_s + bound_s, NODES_S - slack_s) for one in times):
            answers = {"UNKNOWN"}
        if not _is_seen(asked_s(case), whole_s, healed_s + bound_s, QUEUES_S - slack_s):
            answers = {"UNKNOWN"}
        if END_S - 0.5 - whole_s < WHOLE_S + slack_s / 2:
            answers.add("UNKNOWN")
    return "INVALID" if "INVALID" in answers else "UNKNOWN" if "UNKNOWN" in answers else "VALID"


def _ends(case: Case, healed_s: float, slack_s: float, asked_until_s: float) -> list[tuple[float, float, str]]:
    """Return of each thing when it was last ill, when it was seen well after that, and which nodes that may be."""
    ends: list[tuple[float, float, str]] = []
    for node in NODES:
        ends.append((*_last_ill(looks(case, node), healed_s), node))
    for queue in range(case.queues):
        seen = [look for look in _without_blips(case, queue, healed_s) if look[0] < asked_until_s]
        ends.append((*_last_ill(seen, healed_s), "a1 b1 c1"))
        ends.append((*_not_delivering(case, queue, slack_s), "a1 b1 c1"))
    parted = [(t, not any("partitioned" in ill_kinds(case, q, t) for q in range(case.queues))) for t in asked_s(case)]
    ends.append((*_last_ill(parted, healed_s), "b1 c1"))
    return ends


def _last_to_come(ends: list[tuple[float, float, str]]) -> str:
    """Return the nodes that were whole last, or those of what was ill for over 2 s more than any of them."""
    of_nodes = [end for end in ends if end[2] in NODES]
    ill_s = max(last_s for last_s, _, _ in ends)
    gone_s = max(last_s for last_s, _, _ in of_nodes)
    late = ends if ill_s > gone_s + 2 else of_nodes
    last_s = max(end[0] for end in late)
    return " ".join(end[2] for end in late if end[0] > last_s - 0.5)


def _last_ill(seen: list[tuple[float, bool]], healed_s: float) -> tuple[float, float]:
    """Return when something was last seen ill after the healing, and when it was seen well after that."""
    ill_s, whole_s = healed_s, END_S + 9
    for at_s, is_well in seen:
        if at_s > healed_s and not is_well:
            ill_s, whole_s = at_s, END_S + 9
        elif at_s > healed_s and whole_s > END_S:
            whole_s = at_s
    return ill_s, whole_s


def _blips(case: Case, queue: int, healed_s: float) -> tuple[list[tuple[float, bool]], list[float]]:
    """Return the looks at a queue since the healing, and those in which it was ill alone, and not again for 10 s."""
    asked = [at_s for at_s in asked_s(case) if at_s >= healed_s]
    seen = [(at_s, ill_kinds(case, queue, at_s) <= {"silent", "partitioned"}) for at_s in asked]
    blips = []
    for at_s, is_well in seen[1:]:
        others = [t for t, well in seen if not well and t != at_s and abs(t - at_s) < SLOW_S]
        if not is_well and not others:
            blips.append(at_s)
    return seen, blips if len(blips) <= 2 or len(blips) <= len(seen) / 20 else []


def _without_blips(case: Case, queue: int, healed_s: float) -> list[tuple[float, bool]]:
    """Return the looks at a queue; one in which it was slow to tell counts as well, unless it is the last."""
    seen, blips = _blips(case, queue, healed_s)
    return [(at_s, is_well or (at_s in blips and at_s != seen[-1][0])) for at_s, is_well in seen]


def _is_slow_at_end(case: Case, healed_s: float) -> bool:
    """Whether queues are ill in the last look, and each of these may only have been slow to tell."""
    found = []
    for queue in range(case.queues):
        seen, blips = _blips(case, queue, healed_s)
        if seen and not seen[-1][1]:
            found.append(seen[-1][0] in blips)
    return bool(found) and all(found)


def _not_delivering(case: Case, queue: int, slack_s: float) -> tuple[float, float]:
    """Return until when a queue did not deliver for 30 s, though it had messages and its consumers were there."""
    for ill in case.ills:
        if ill.queue == queue and ill.kind == "silent" and min(ill.to_s, END_S) - ill.from_s > SILENT_S + slack_s:
            return min(ill.to_s, END_S), ill.to_s if ill.to_s < 89 else END_S + 9
    return 0.0, 0.0


def _is_seen(times_s: list[float], whole_s: float, due_s: float, bound_s: float) -> bool:
    """Whether something was looked at all the time since it was whole, or since a look that was still in time."""
    before_s = max([at_s for at_s in times_s if at_s <= whole_s], default=whole_s)
    begins = [before_s, *[at_s for at_s in times_s if whole_s < at_s <= due_s]]
    return any(longest_gap_s(times_s, begin_s, END_S) <= bound_s for begin_s in begins)


def _late(case: Case, last: str, late_s: float, bound_s: float, ever: bool) -> str:
    """Return what is said of what is late: the machine excuses what is not twice as late. ``last``: who came last."""
    for part in case.machine:
        mine_s = part.waited * late_s if part.node in last else 0.0
        if late_s > 2 * bound_s or (not ever and mine_s < late_s / 2):
            continue
        if (ever and part.others >= 0.25) or late_s - mine_s <= 2 * bound_s - case.within_s:
            return "UNKNOWN"
    return "INVALID"


def finding(case: Case) -> Any:
    """Return the whole finding."""
    return checked("recovery", recorded(case), within_s=case.within_s)


def found(case: Case) -> str:
    """Return the checker's answer."""
    return str(finding(case).verdict)
