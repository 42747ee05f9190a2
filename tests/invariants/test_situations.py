from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from invariants.facts import Pair, Step
from invariants.situations import Period, situations
from tests.invariants.literal import THREE

PAIRS: list[Pair] = [frozenset(pair) for pair in itertools.combinations(THREE, 2)]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    begin, length = draw(st.integers(-5, 40)), draw(st.integers(0, 20))
    return Step(
        number=0,
        fault="any",
        states={"injecting": begin, "healed": begin + length},
        down=draw(st.frozensets(st.sampled_from(THREE), max_size=2)),
        cut=draw(st.frozensets(st.sampled_from(PAIRS), max_size=2)),
        sudden=draw(st.booleans()),
    )


@given(st.lists(steps(), max_size=8))
def test_each_situation_is_what_its_steps_do_in_it(schedule: list[Step]) -> None:
    span: Period = (0, 50)

    found = situations(THREE, schedule, lambda step, _: step.possible_us, span)

    assert [s.start_us for s in found] == [0, *(s.end_us for s in found[:-1])]
    assert found[-1].end_us == 50
    for t_us in range(50):
        acting = [step for step in schedule if step.possible_us[0] <= t_us < step.possible_us[1]]
        (now,) = (s for s in found if s.start_us <= t_us < s.end_us)
        assert now.up == frozenset(THREE) - {node for step in acting for node in step.down}
        assert now.cut == {pair for step in acting for pair in step.cut}
        assert now.closed == {pair for step in acting if step.sudden for pair in step.cut}
