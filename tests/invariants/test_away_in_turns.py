"""Who was away while a rolling restart went on, against a slow way to the same: instant by instant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.gaps import UNWATCHED_S_MAX
from tests.invariants.literal import THREE, cluster, event, fault, us

BEGINS_S, ENDS_S, LAST_S = 10, 40, 50

looks_at = st.dictionaries(
    st.integers(0, LAST_S), st.sampled_from(["up", "up", "down", "paused", "unlooked"]), min_size=1
)


def slowly(looks: dict[int, str], at_s: float) -> bool:
    """Return whether a1 may be away at that instant, by the looks (at whole seconds) of the step from 10 to 40 s."""
    seen = {t: state for t, state in looks.items() if BEGINS_S <= t <= ENDS_S}
    later_up = [t for t, state in looks.items() if state == "up" and t >= ENDS_S]
    if not BEGINS_S <= at_s < min(later_up, default=float("inf")):
        return False
    ups = sorted({t for t, state in seen.items() if state == "up"})
    before = max([BEGINS_S, *(t for t in ups if t <= at_s)])
    after = min([t for t in [*ups, *later_up] if t > at_s], default=float("inf"))
    between = [state for t, state in seen.items() if before <= t < after and state != "up"]
    for t in [BEGINS_S, *ups]:  # a run of looks in which the process was gone, and which ended before
        end = min([one for one in ups if one > t], default=float("inf"))
        if end <= before and any(s == "down" and t <= one < end for one, s in seen.items()):
            return False
    return bool(between) or after - before > UNWATCHED_S_MAX


@given(looks_at)
def test_a_node_was_away_only_when_it_was_seen_away_or_not_looked_at(told: dict[int, str]) -> None:
    looks = {t: state for t, state in told.items() if state != "unlooked"}
    steps = fault(BEGINS_S, ENDS_S, name="rolling_restart", down=THREE, intermittent=True)
    seen = [event(t, "nodes", states={"a1": state}) for t, state in sorted(looks.items())]
    facts = Facts(sorted([cluster(), *steps, *seen], key=lambda one: one.t_us))
    assert facts.cluster is not None
    away = truth_of(facts, facts.cluster).away["a1"]
    assert away.surely.empty
    for half in range(2 * LAST_S):
        at_s = half / 2 + 0.25
        assert (us(at_s) in away.possibly) == slowly(looks, at_s), at_s
