"""Histories with a known truth: every promise is kept in them, or, if that is asked, one is broken."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from tests.invariants.instants.case import Act, Case, Message, Nodes, as_cut
from tests.invariants.instants.played import Cluster

ALL = ("a1", "b1", "c1", "a2", "b2")
MODES = ("pause_minority", "pause_minority", "autoheal", "ignore", "pause_if_all_down")
PLANTS = (*[""] * 7, "lose", "vain", "awake", "asleep", "swap", "declare", "early", "idle")
WHATS = (*["sides"] * 5, "pair", "pair", "kill", "kill", "suspend", "suspend", "flapping", "slow", "starve", "ail")
#: Ticks until nothing follows any more from what was healed last.
SETTLED = 75


@dataclass(frozen=True)
class Made:
    """A case, what was planted in it, and whether every promise was kept in it."""

    case: Case
    plant: str

    @property
    def sound(self) -> bool:
        return not self.plant


def made(source: random.Random) -> Made:
    """A case of that source of chance."""
    nodes = ALL[: source.randint(3, 5)]
    mode = source.choice(MODES)
    kind = source.choice(["quorum", "mirrored"])
    members = frozenset(nodes if source.random() < 0.5 else nodes[: 3 if kind == "quorum" else 2])
    preferred = _some(source, nodes, 2) if "all_down" in mode else frozenset()
    drawn = [_act(source, nodes) for _ in range(source.randint(1, 4))]
    last = max(act.healed for act, _ in drawn)
    ticks = last + (SETTLED if mode != "pause_minority" else 30)
    rng = random.Random(source.getrandbits(32))  # noqa: S311 - no secret
    felt = tuple(as_cut(act, nodes) for act, _ in drawn)
    actual = tuple(_actual(act, rng) for act in felt)
    cluster = Cluster(nodes, mode, members, kind, preferred, felt, actual, tuple(s for _, s in drawn), rng)
    cluster.play(ticks)
    case = replace(_case(cluster, ticks), acts=tuple(act for act, _ in drawn))
    plant = source.choice(PLANTS)
    return Made(planted(case, plant, rng) if plant else case, plant)


def _act(source: random.Random, nodes: tuple[str, ...]) -> tuple[Act, bool]:
    """A step, and whether it suspends the nodes that it takes away."""
    begin, lasts = source.randint(4, 50), source.randint(2, 40)
    slow, slow_end = source.randint(0, 2), source.randint(0, 2)
    times = (begin, begin + slow, begin + slow + lasts, begin + slow + lasts + slow_end)
    what = source.choice(WHATS)
    if what in ("kill", "suspend"):
        return Act(*times, down=_some(source, nodes, len(nodes))), what == "suspend"
    if what == "ail":
        return Act(*times, down=_some(source, nodes, len(nodes)), serves=True), False
    if what == "starve":
        return Act(*times, starved=_some(source, nodes, 2)), False
    pairs = [frozenset(pair) for pair in itertools.combinations(nodes, 2)]
    if what == "pair":
        cut = frozenset([source.choice(pairs)])
    else:
        side = _some(source, nodes, len(nodes) - 1)
        cut = frozenset(pair for pair in pairs if len(pair & side) == 1)
    if what == "slow":
        ways = [(min(pair), max(pair)) for pair in sorted(cut, key=sorted)]
        back = [(b, a) for a, b in ways] if source.random() < 0.5 else []
        return Act(*times, slow=frozenset([*ways, *back]), slow_ticks=source.randint(1, 8)), False
    return Act(*times, cut=cut, sudden=source.random() < 0.5, intermittent=what == "flapping"), False


def _some(source: random.Random, nodes: tuple[str, ...], at_most: int) -> Nodes:
    return frozenset(source.sample(nodes, source.randint(1, at_most)))


def _actual(act: Act, rng: random.Random) -> frozenset[int]:
    """In which ticks it really acts: from within its injection to within its healing."""
    ticks = range(rng.randint(act.injecting, act.injected), rng.randint(act.healing, act.healed))
    if act.serves:  # it dies in the middle, or not at all
        return frozenset(range(rng.choice([*ticks, ticks.stop]) if rng.random() < 0.7 else ticks.stop, ticks.stop))
    if not act.intermittent:
        return frozenset(ticks)
    on, period = rng.randint(1, 8), rng.randint(9, 16)
    return frozenset(t for t in ticks if (t - ticks.start) % period < on)


def _case(cluster: Cluster, ticks: int) -> Case:
    messages = [t for t in cluster.things if t.of_queue]
    kept = cluster.joined_late
    rows = tuple(Message(n, t.node, t.sent, t.confirmed, not (t.holders or kept)) for n, t in enumerate(messages))
    everybody = frozenset(cluster.nodes)
    return Case(
        nodes=cluster.nodes,
        mode=cluster.mode,
        kind=cluster.kind,
        members=cluster.members,
        ticks=ticks,
        acts=cluster.acts,
        looks=cluster.looks,
        messages=rows,
        received=tuple(m.sequence for m in rows if not m.lost),
        preferred=cluster.preferred,
        declared=tuple(
            (t.node, t.sent, everybody if kept else frozenset(t.holders)) for t in cluster.things if not t.of_queue
        ),
    )


def planted(case: Case, plant: str, rng: random.Random) -> Case:
    """The case with something that may be wrong; whether it is, the reference has to say."""
    node, at = rng.choice(case.nodes), rng.randrange(case.ticks - 20)
    if plant == "lose" and case.messages:
        gone = set(rng.sample(range(len(case.messages)), min(len(case.messages), rng.randint(1, 3))))
        return replace(
            case,
            messages=tuple(replace(m, lost=m.lost or m.sequence in gone) for m in case.messages),
            received=tuple(n for n in case.received if n not in gone),
        )
    if plant == "vain":
        new = Message(len(case.messages), node, at, at + rng.choice([0, 0, 1, 8]))
        return replace(case, messages=(*case.messages, new), received=(*case.received, new.sequence))
    if plant == "swap" and len(case.received) > 1:
        order = list(case.received)
        i, j = sorted(rng.sample(range(len(order)), 2))
        order[i], order[j] = order[j], order[i]
        return replace(case, received=tuple(order))
    if plant == "declare" and case.declared:
        i = rng.randrange(len(case.declared))
        through, when, _ = case.declared[i]
        known = frozenset(rng.sample(case.nodes, rng.randint(0, len(case.nodes) - 1)))
        return replace(case, declared=(*case.declared[:i], (through, when, known), *case.declared[i + 1 :]))
    return replace(case, looks=_seen_otherwise(case, plant, node, at, rng))


def _seen_otherwise(case: Case, plant: str, node: str, at: int, rng: random.Random) -> dict[int, dict[str, str]]:
    looks = {t: dict(states) for t, states in case.looks.items()}
    healed = max(act.healed for act in case.acts)
    long = rng.randint(1, 8)
    for t, states in looks.items():
        if plant in ("awake", "early") and states[node] == "paused" and (plant == "awake" or t >= at):
            states[node] = "up"
        elif plant == "asleep" and at <= t < at + long:
            states[node] = "paused"
        elif plant == "idle" and t >= healed:  # nobody restarts in the end
            states.update(dict.fromkeys(case.nodes, "up"))
    return looks
