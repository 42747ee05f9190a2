"""Keep which links between brokers are disturbed, for how long, and which nodes that separates."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from rabbitmq_resilience.extensions.attached.machine import ForcedError
from rabbitmq_resilience.extensions.attached.packet_rules import Treatment
from rabbitmq_resilience.model.links import Link, largest_group
from rabbitmq_resilience.sut.broker.handshake import Probe

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def on_each(items: Collection[Item], act: Callable[[Item], Answer]) -> list[Answer]:
    """Call ``act`` with each item, all at once, and return the answers in the order of the items."""
    with ThreadPoolExecutor(max_workers=max(1, len(items))) as pool:
        return list(pool.map(act, items))


def out_of_reach(names: Collection[str], links: Collection[Link]) -> int:
    """Return how many nodes are outside the largest group that all reach each other if these links are cut.

    The number is at least one. One cut direction separates a pair of nodes.
    """
    return max(1, len(names) - len(largest_group(names, {frozenset(link) for link in links})))


@dataclass
class HeldLinks(ABC):
    """The treatments that are wanted of each link, until when (``time.monotonic``), and those that may be left over.

    A treatment is left over if its healing failed. Methods that look at a link return None if there is no way to look.
    """

    _wanted: dict[Link, dict[Treatment, float]] = field(default_factory=lambda: defaultdict(dict), init=False)
    _unhealed: dict[Link, set[Treatment]] = field(default_factory=lambda: defaultdict(set), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def put(self, how: Treatment, links: Collection[Link], *, for_s: float) -> None:
        """Treat the links so; that ends by itself some time after ``for_s``."""
        with self._lock:
            for link in links:
                ends_s = time.monotonic() + for_s
                self._wanted[link][how] = max(ends_s, self._wanted[link].get(how, 0.0))
            self._bring(how, links)

    def take(self, how: Treatment, links: Collection[Link]) -> None:
        """Stop treating the links so.

        If healing fails, the links stay held and count until another call heals them.
        """
        forced: ForcedError | None = None
        with self._lock:
            for link in links:
                if self._wanted[link].pop(how, None) is not None:
                    self._unhealed[link].add(how)
            try:
                self._bring(how, links)
            except ForcedError as error:  # the links are healed
                forced = error
            for link in links:
                self._unhealed[link].discard(how)
        if forced is not None:
            raise forced

    @property
    def clean(self) -> bool:
        return not any(self._wanted.values()) and not any(self._unhealed.values())

    def parted_by(self, how: Treatment, more: Collection[Link]) -> int:
        """Return how many nodes are ``out_of_reach`` if ``more`` links are treated so."""
        return out_of_reach(self.nodes, {*self._held(how), *more})

    def held_by(self, alike: Callable[[Treatment], bool]) -> frozenset[str]:
        """Return the nodes at which links are treated by a treatment that is ``alike``."""
        held = ((link, how) for link, ways in self._all_held() for how in ways if alike(how))
        return frozenset(self.end_of(how, link) for link, how in held)

    def end_of(self, how: Treatment, link: Link) -> str:  # noqa: ARG002 - for others
        """Return the node at which the link is treated so."""
        return link.target

    def delays_of(self, links: Collection[Link]) -> set[Treatment]:
        """Return the treatments by which any of these links is delayed, or may still be."""
        return {how for link, ways in self._all_held() if link in links for how in ways if how.verb == "delay"}

    def _held(self, how: Treatment) -> set[Link]:
        return {link for link, ways in self._all_held() if how in ways}

    def _all_held(self) -> list[tuple[Link, Collection[Treatment]]]:
        return [*self._wanted.items(), *self._unhealed.items()]

    @property
    @abstractmethod
    def nodes(self) -> Collection[str]:
        """Return the names of all nodes."""
        ...

    @abstractmethod
    def _bring(self, how: Treatment, links: Collection[Link]) -> None:
        """Bring these links to what is wanted of them now, after the treatment ``how`` has begun or ended. Raise
        MachineError if that fails."""
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
