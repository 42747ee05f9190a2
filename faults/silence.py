"""Proofs by probes: that links were silent for a time, however short, and that they carry again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from faults.fault import Arena, Proof, left_over
from topologies.probes import ProbeRound
from topologies.spec import Link
from topologies.waiting import WaitTimeout, wait_until

#: What is held back arrives as soon as its link is restored; a broker may be busy then.
ANSWERED_WITHIN_S = 5.0
CARRIES_AGAIN_WITHIN_S = 20.0
#: How long a link must be silent while its broker answers beside it, where one need not wait for its healing.
SILENT_S = 1.0
_NAMED_MAX = 4


@dataclass
class Silence:
    """What probes see of a cut of ``links``. Made before the cut; ``begin`` once it is in place, ``end`` right before
    it is healed, ``prove`` afterwards. Links that another fault silences already, or whose broker is away, are left
    out: they cannot tell."""

    arena: Arena
    links: Collection[Link]
    _begun_s: float = field(default=0.0, init=False)
    _ended_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        told = [link for link in self.links if self.arena.is_answered(link)]
        self._round = ProbeRound(self.arena.cluster.links, told)

    def begin(self) -> None:
        self._begun_s = time.monotonic()
        self._round.send()

    def end(self) -> None:
        self._ended_s = time.monotonic()

    def close(self) -> None:
        self._round.close()

    def prove_while_cut(self, *, timeout_s: float) -> Proof:
        """For a cut that lasts: nothing crosses for ``SILENT_S``, and the brokers answer past the proxies meanwhile."""

        def told() -> bool:
            return time.monotonic() > self._begun_s + SILENT_S and self._round.all_answered_directly

        with suppress(WaitTimeout):
            wait_until(told, timeout_s=timeout_s, poll_s=0.02, what="brokers to answer past the proxies")
        self.end()
        complaints = self._complaints(self._crossed(), self._untold(dict.fromkeys(self._round.over, self._ended_s)))
        return complaints or Proof(True, f"no probe crossed {self._count} in {self._lasted_s:.1f} s")

    def prove(self) -> Proof:
        """For a cut that is over: no probe was answered before its end, each was afterwards, and its broker had
        answered a later one past the proxy by then."""
        heard = self._round.answered_s

        def missing() -> list[Link]:
            return [link for link in self._round.over if link not in heard and not self.arena.is_silent(link)]

        with suppress(WaitTimeout):
            wait_until(
                lambda: not missing(), timeout_s=ANSWERED_WITHIN_S, poll_s=0.02, what="the probes that were held back"
            )
        complaints = self._complaints(
            self._crossed(),
            [f"no probe crosses {_named(missing())} after it either"] if missing() else [],
            self._untold(heard),
        )
        return complaints or Proof(
            True, f"probes over {self._count} were held back until they were restored, {self._lasted_s * 1000:.0f} ms"
        )

    @property
    def _lasted_s(self) -> float:
        return self._ended_s - self._begun_s

    @property
    def _count(self) -> str:
        return f"{len(self._round.over)} link{'s' if len(self._round.over) != 1 else ''}"

    def _crossed(self) -> list[str]:
        crossed = [link for link, at_s in self._round.answered_s.items() if at_s <= self._ended_s]
        return [f"a probe crossed {_named(crossed)} during the cut"] if crossed else []

    def _untold(self, by_s: dict[Link, float]) -> list[str]:
        """Links that may have been silent only because their broker was."""
        slow = [link for link, at_s in by_s.items() if not self._round.answered_directly(link, before_s=at_s)]
        nodes = sorted({link.nodes[-1] for link in slow})
        return [f"{', '.join(nodes)} did not answer past the proxies either"] if nodes else []

    def _complaints(self, *found: Iterable[str]) -> Proof | None:
        """What speaks against the cut; also closes all probes."""
        unreached = self._round.unreached
        self.close()
        if not self._round.over:
            return Proof(False, "there is no link to probe: each is silent already, or its broker is away")
        if unreached:
            return Proof(False, f"no probe was accepted on {_named(unreached)}")
        texts = [text for some in found for text in some]
        return Proof(False, "; ".join(texts)) if texts else None


def prove_links_carry(arena: Arena, links: frozenset[Link]) -> Proof:
    """A probe crosses every link on which one can be answered by now."""

    def silent() -> list[str]:
        return [
            str(link)
            for link in sorted(links & arena.cluster.links.proxied)
            if arena.is_answered(link) and arena.cluster.links.probe_ms(link, timeout_s=2.0) is None
        ]

    still = left_over(silent, timeout_s=CARRIES_AGAIN_WITHIN_S, what="probes to cross the links")
    if still:
        return Proof(False, f"no probe crosses {', '.join(still)}")
    return Proof(True, "a probe crosses every link that was cut")


def unproxied(arena: Arena, links: Collection[Link]) -> Proof | None:
    """Why nothing can have been cut at all; None if every link carries a proxy."""
    bare = [link for link in links if link not in arena.cluster.links.proxied]
    if not bare:
        return None
    return Proof(False, f"{_named(bare)} carr{'y' if len(bare) > 1 else 'ies'} no proxy: nothing happened there")


def _named(links: Collection[Link]) -> str:
    names = [str(link) for link in sorted(links)]
    return ", ".join(names[:_NAMED_MAX]) + (f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else "")
