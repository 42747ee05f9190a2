"""Try connections between nodes many times, to measure which packets are lost or late on the way.

The Erlang module ``resilience_probe`` knocks from the machine of each link's source, and its target's kernel answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Literal

from rabbitmq_resilience.model.links import Link


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
    source finds its target. ``run`` runs the module's ``main`` at a node, and returns its output.
    """
    groups: dict[tuple[str, int], dict[str, Link]] = {}
    for link in links:
        address, port = end_of(link)
        groups.setdefault((link.source, port), {})[address] = link

    def answers(group: tuple[str, int]) -> list[tuple[Link, float]]:
        (source, port), there = group, groups[group]
        words = (str(port), str(times), str(at_once), str(round(wait_s * 1000)), counts, *there)
        return [(there[address], int(us) / 1000) for address, us in map(str.split, run(source, words).splitlines())]

    took: dict[Link, list[float]] = {link: [] for link in links}
    with ThreadPoolExecutor(max_workers=max(1, len(groups))) as pool:
        for link, ms in chain.from_iterable(pool.map(answers, groups)):
            took[link].append(ms)
    return took
