"""Draw scripts for one connection: frames on several channels, and rules for some of them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import count

from rabbitmq_resilience.tap.method_rules import MethodRule
from tests.tap.frames import ALIVE, content, method, refusal

#: What each side says on a channel; those with content are first.
_SAID = {
    0: [(60, 40), (60, 40), (50, 10), (60, 80), (60, 20), (20, 40), (20, 41), (20, 41), (20, 10)],
    1: [(60, 60), (60, 71), (60, 50), (60, 80), (60, 80), (60, 120), (60, 21), (20, 40), (20, 41), (20, 41), (50, 11)],
}
_CONTENTS = {0: 2, 1: 3}


def drawn_rules(chance: random.Random) -> list[MethodRule]:
    made: list[Callable[[], MethodRule]] = [
        lambda: MethodRule(method="confirms", treatment="hold", for_s=0.2 + chance.random(), times=times()),
        lambda: MethodRule(
            method="basic.consume-ok", treatment="hold", for_s=3 * chance.random() + 0.01, times=times()
        ),
        lambda: MethodRule(method="basic.publish", treatment="hold", for_s=0.2 + chance.random(), times=times()),
        lambda: MethodRule(method="confirms", treatment="drop", times=times()),
        lambda: MethodRule(method="basic.publish", treatment="drop", times=times()),
        lambda: MethodRule(method="basic.deliver", treatment="drop", times=times()),
        lambda: MethodRule(method="basic.get-ok", treatment="drop", times=times()),
        lambda: MethodRule(method="queue.declare", treatment="answer", code=404, text="no", times=times()),
        lambda: MethodRule(method="basic.publish", treatment="answer", code=403, text="no", times=times()),
        lambda: MethodRule(method="basic.consume", treatment="answer", code=541, text="no", times=times()),
    ]

    def times() -> int | None:
        return chance.choice([1, 1, 2, 3, None])

    return [make() for make in chance.sample(made, chance.randint(0, 3))]


def drawn_frames(chance: random.Random, side: int) -> list[bytes]:
    """Return what a side sends: the frames of a channel keep their order, and those of others come between."""
    serial = count(1)
    channels = []
    for channel in range(1, 4):
        frames: deque[bytes] = deque()
        for _ in range(chance.randint(0, 12)):
            which = chance.randrange(len(_SAID[side]))
            ids = _SAID[side][which]
            mark = next(serial).to_bytes(4)
            frames.append(
                refusal(channel, next(serial), "x", (0, 0)) if ids == (20, 40) else method(channel, ids, mark)
            )
            if which < _CONTENTS[side]:
                body = mark * chance.choice([0, 1, 5, 30])
                frames.extend(content(channel, body, pieces=chance.choice([1, 1, 3])))
        channels.append(frames)
    sent = []
    while any(channels):
        sent.append(chance.choice([each for each in channels if each]).popleft())
        if chance.random() < 0.1:
            sent.append(ALIVE)
        if chance.random() < 0.04:
            sent.append(method(0, chance.choice([(10, 50), (10, 51), (10, 60)])))
    return sent
