"""One probe over each of some links, all sent in the same moment: which of them were silent, and until when.

A probe alone cannot tell a link that is cut for 4 ms from a broker that is busy for 4 ms. So after the probes another
one goes to each broker past the proxies. A link was cut if nothing came back over it before it was restored, and
its broker answered the later probe before the one that was held back.
"""

from __future__ import annotations

import selectors
import threading
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from topologies.cluster import Links
from topologies.handshake import Probe
from topologies.spec import Link

_POLL_S = 0.05

#: A broker, and whether it is asked as clients do or as its peers do.
_Asked = tuple[str, bool]


@dataclass
class ProbeRound:
    """Opened before the links are cut, as a cut may be over before a connection is made; ``send`` once they are."""

    links: Links
    over: Collection[Link]
    #: When each answer came, on the monotonic clock; what was not answered is not in it.
    answered_s: dict[Link, float] = field(default_factory=dict)
    _direct_s: dict[_Asked, float] = field(default_factory=dict)
    _closed: threading.Event = field(default_factory=threading.Event)
    _stack: ExitStack = field(default_factory=ExitStack)
    _listening: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._probes = {link: self._opened(link) for link in sorted(self.over)}
        self._direct = {_asked(link): self._opened(link, direct=True) for link in sorted(self.over)}

    def send(self) -> None:
        """Send every probe, and after all of them the direct ones; then listen for the answers."""
        for probe in [*self._probes.values(), *self._direct.values()]:
            if probe is not None:
                with suppress(OSError):  # closed by the broker: it will not answer either
                    probe.send()
        self._listening = threading.Thread(target=self._listen, name="probe-round", daemon=True)
        self._listening.start()

    @property
    def unreached(self) -> list[Link]:
        """The links over which no connection could even be opened, or past whose proxies none."""
        return [link for link, probe in self._probes.items() if probe is None or self._direct[_asked(link)] is None]

    def answered_directly(self, link: Link, *, before_s: float) -> bool:
        """Whether the link's broker had answered past the proxies by then."""
        return self._direct_s.get(_asked(link), before_s + 1) <= before_s

    @property
    def all_answered_directly(self) -> bool:
        return self._direct.keys() <= self._direct_s.keys()

    def close(self) -> None:
        self._closed.set()
        if self._listening is not None:
            self._listening.join()
        self._stack.close()

    def _opened(self, link: Link, *, direct: bool = False) -> Probe | None:
        probe = self.links.probe(link, direct=direct)
        return None if probe is None else self._stack.enter_context(probe)

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
    return link.nodes[-1], link.client is not None
