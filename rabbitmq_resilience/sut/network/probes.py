"""Send one probe over each of several links at the same moment, and record which were silent, and until when.

A probe alone cannot distinguish a link that is cut for 4 ms from a broker that is busy for 4 ms. So once the probes
over the links must have arrived, each broker gets a direct probe, past the proxies. A link was cut if its broker
answered the direct probe, and no answer came over the link by the time that an earlier one would have taken.
"""

from __future__ import annotations

import selectors
import threading
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker.handshake import Probe
from rabbitmq_resilience.sut.link_protocol import Links

_POLL_S = 0.05

#: A broker, and whether the probe speaks AMQP (as clients do) or the distribution protocol (as peers do).
_Asked = tuple[str, bool]


@dataclass
class ProbeRound:
    """One round of probes over the links ``over``.

    Entering the context opens the connections, before the links are cut: a cut may end before a connection is made.
    The end of the context closes them. Call ``send`` once the links are cut, and ``ask`` for the direct answers.
    """

    links: Links
    over: Collection[Link]
    #: When each answer came, on the monotonic clock. Links without an answer are left out.
    answered_s: dict[Link, float] = field(default_factory=dict)
    _direct_s: dict[_Asked, float] = field(default_factory=dict)
    _closed: threading.Event = field(default_factory=threading.Event)
    _stack: ExitStack = field(default_factory=ExitStack)
    _listening: threading.Thread | None = None

    _probes: dict[Link, Probe | None] = field(default_factory=dict)
    _direct: dict[_Asked, Probe | None] = field(default_factory=dict)

    def __enter__(self) -> Self:
        try:
            self._probes = {link: self._opened(link) for link in sorted(self.over)}
            self._direct = {_asked(link): self._opened(link, direct=True) for link in sorted(self.over)}
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self) -> None:
        """Send a probe over each link."""
        self._send(self._probes.values())

    def ask(self) -> None:
        """Send each broker a direct probe."""
        self._send(self._direct.values())

    @property
    def unreached(self) -> list[Link]:
        """Return the links over which no connection could be opened, either by the proxy or directly."""
        return [link for link, probe in self._probes.items() if probe is None or self._direct[_asked(link)] is None]

    @property
    def away(self) -> list[Link]:
        """Return the links whose broker accepts no direct connection either."""
        return [link for link in self._probes if self._direct[_asked(link)] is None]

    def answered_directly(self, link: Link, *, before_s: float) -> bool:
        """Return whether the link's broker had answered the direct probe by ``before_s``."""
        return self._direct_s.get(_asked(link), before_s + 1) <= before_s

    @property
    def all_answered_directly(self) -> bool:
        """Return whether every broker with a direct connection has answered its direct probe."""
        return {asked for asked, probe in self._direct.items() if probe is not None} <= self._direct_s.keys()

    def close(self) -> None:
        """Stop listening and close the connections. This may be called more than once."""
        self._closed.set()
        if self._listening is not None:
            self._listening.join()
        self._stack.close()

    def _opened(self, link: Link, *, direct: bool = False) -> Probe | None:
        probe = self.links.probe(link, direct=direct)
        return None if probe is None else self._stack.enter_context(probe)

    def _send(self, probes: Iterable[Probe | None]) -> None:
        for probe in probes:
            if probe is not None:
                with suppress(OSError):  # the broker has closed the connection, and will not answer either
                    probe.send()
        if self._listening is None:
            self._listening = threading.Thread(target=self._listen, name="probe-round", daemon=True)
            self._listening.start()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for place, probe in [*self._probes.items(), *self._direct.items()]:
                if probe is not None:
                    selector.register(probe, selectors.EVENT_READ, (place, probe))
            while selector.get_map() and not self._closed.is_set():
                for key, _ in selector.select(_POLL_S):
                    selector.unregister(key.fileobj)
                    place, probe = key.data
                    self._take(place, probe)

    def _take(self, place: Link | _Asked, probe: Probe) -> None:
        answered_s = None
        with suppress(OSError):
            answered_s = probe.receive(timeout_s=0)
        probe.close()
        if answered_s is None:
            return
        if isinstance(place, Link):
            self.answered_s[place] = answered_s
        else:
            self._direct_s[place] = answered_s


def _asked(link: Link) -> _Asked:
    return link.answering, link.client is not None
