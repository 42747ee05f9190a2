"""Which links between brokers are held, for how long, and what that parts; by whatever it is done."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from rabbitmq_resilience.clusters.attached.delays import Delay
from rabbitmq_resilience.clusters.attached.machine import ForcedError, MachineError
from rabbitmq_resilience.clusters.attached.packet_rules import Treatment
from rabbitmq_resilience.clusters.broker.handshake import Probe
from rabbitmq_resilience.clusters.spec import Link

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def on_each(items: Collection[Item], act: Callable[[Item], Answer]) -> list[Answer]:
    """All at once."""
    with ThreadPoolExecutor(max_workers=max(1, len(items))) as pool:
        return list(pool.map(act, items))


def out_of_reach(names: Collection[str], links: Collection[Link]) -> int:
    """How many nodes are not of the largest group that is whole where these links are cut, and one at least. A pair is
    parted by one direction."""
    parted, nodes = {frozenset(link) for link in links}, set(names)
    largest, left = 0, set(nodes)
    while left:
        group, edge = set[str](), {left.pop()}
        while edge:
            group |= edge
            edge = {n for n in nodes - group if any(frozenset((n, one)) not in parted for one in group)}
        left -= group
        largest = max(largest, len(group))
    return max(1, len(nodes) - largest)


@dataclass
class HeldLinks(ABC):
    """What is wanted of each link, and until when (``time.monotonic``), and what may still be there although it is not
    wanted any more, as healing failed. Nothing is known of links where there is no way to look."""

    _wanted: dict[Link, dict[Treatment, float]] = field(default_factory=lambda: defaultdict(dict), init=False)
    _unhealed: dict[Link, set[Treatment]] = field(default_factory=lambda: defaultdict(set), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def put(self, how: Treatment, links: Collection[Link], *, for_s: float) -> None:
        """It goes by itself some time after ``for_s``."""
        with self._lock:
            for link in links:
                ends_s = time.monotonic() + for_s
                self._wanted[link][how] = max(ends_s, self._wanted[link].get(how, 0.0))
            self._bring(links)

    def take(self, how: Treatment, links: Collection[Link]) -> None:
        """What could not be healed is held, and counts, until it is taken again and was."""
        forced: ForcedError | None = None
        with self._lock:
            for link in links:
                if self._wanted[link].pop(how, None) is not None:
                    self._unhealed[link].add(how)
            try:
                self._bring(links)
            except ForcedError as error:  # it is healed
                forced = error
            for link in links:
                self._unhealed[link].discard(how)
        if forced is not None:
            raise forced

    @property
    def clean(self) -> bool:
        return not any(self._wanted.values()) and not any(self._unhealed.values())

    def parted_by(self, how: Treatment, more: Collection[Link]) -> int:
        """How many nodes are ``out_of_reach``, with ``more`` links such as these."""
        return out_of_reach(self.nodes, {*self._held(how), *more})

    def held_by(self, how: Treatment) -> frozenset[str]:
        """The nodes that receive over such links."""
        return frozenset(link.target for link in self._held(how))

    def _held(self, how: Treatment) -> set[Link]:
        return {link for ways in (self._wanted, self._unhealed) for link, held in ways.items() if how in held}

    @property
    def delays_what_it_sends(self) -> bool:
        """Whether packets are delayed where they are sent, by ``delay``, and not as a treatment where they arrive."""
        return False

    def delay(self, links: Collection[Link], delay: Delay, *, for_s: float) -> None:  # noqa: ARG002 - for others
        raise MachineError(f"packets between brokers cannot be delayed here: {', '.join(map(str, links))}")

    def undelay(self, links: Collection[Link]) -> None:  # noqa: ARG002 - for others
        return

    def delayed_from(self) -> frozenset[str]:
        """The nodes that send over links that are delayed."""
        return frozenset()

    def delayed(self, links: Collection[Link]) -> set[Treatment]:
        """How some of these are delayed."""
        return {how for link in links for how in self._wanted.get(link, ()) if how.verb == "delay"}

    @property
    @abstractmethod
    def nodes(self) -> Collection[str]:
        """All that there are."""
        ...

    @abstractmethod
    def _bring(self, links: Collection[Link]) -> None:
        """Bring these links to what is wanted of them now. Raises MachineError."""
        ...

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool] | None:  # noqa: ARG002 - for others
        return None

    def probe(self, link: Link, *, direct: bool) -> Probe | None:  # noqa: ARG002 - for others
        return None

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool) -> float | None:  # noqa: ARG002 - for others
        return None

    def is_refused(self, link: Link) -> bool:  # noqa: ARG002 - for others
        return False

    def connection(self, link: Link) -> str | None:  # noqa: ARG002 - for others
        return None

    def machines_answer(self) -> bool:
        return True
