"""Try connections between nodes many times, to measure which packets are lost or late on the way.

The Erlang module ``resilience_probe`` knocks from the machine of each link's source, and its target's kernel answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Literal

from rabbitmq_resilience.model.links import Link

#: A line of the module's output: an address and microseconds.
_ANSWER = re.compile(r"^(\S+) (\d+)$", re.MULTILINE)


def knocked(
    links: Collection[Link],
    *,
    times: int,
    at_once: int,
    wait_s: float,
    counts: Literal["refused", "any"],
    end_of: Callable[[Link], tuple[str, int]],
    run: Callable[[str, Sequence[str]], str],
) -> dict[Link, list[float]]:
    """Return the ms that each answer took, by link. ``model.packets.PacketActs`` explains the numbers.

    ``counts``: the answers that count, see the module. ``end_of`` returns the address and the port at which the link's
    source finds its target. ``run`` runs the module's ``main`` at a node, and returns its output; lines that are no
    answers are skipped, such as warnings of a compiler.
    """
    groups: dict[tuple[str, int], dict[str, Link]] = {}
    for link in links:
        address, port = end_of(link)
        groups.setdefault((link.source, port), {})[address] = link

    def answers(group: tuple[str, int]) -> list[tuple[Link, float]]:
        (source, port), there = group, groups[group]
        words = (str(port), str(times), str(at_once), str(round(wait_s * 1000)), counts, *there)
        found = _ANSWER.findall(run(source, words))
        return [(there[address], int(us) / 1000) for address, us in found if address in there]

    took: dict[Link, list[float]] = {link: [] for link in links}
    with ThreadPoolExecutor(max_workers=max(1, len(groups))) as pool:
        for link, ms in chain.from_iterable(pool.map(answers, groups)):
            took[link].append(ms)
    return took
