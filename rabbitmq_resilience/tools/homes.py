"""The brokers that set-up unpacks of Debian's releases, each with the Erlang that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.locations import TOOLS

#: Written last, and holds the folder's own path: what was moved or left unfinished is no home.
PROVEN = "proven"


@dataclass(frozen=True)
class Home:
    """One of Debian's releases that has a broker. ``glibc`` is the version of its C library, () where it moves on."""

    release: str
    has: str
    glibc: tuple[int, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether its packages are replaced by newer ones from time to time."""
        return not self.glibc

    def place(self, tools: Path = TOOLS) -> Path:
        """Return the folder that its packages are unpacked into."""
        return tools / "brokers" / self.release

    def is_there(self, tools: Path = TOOLS) -> bool:
        """Return whether set-up has unpacked and proven it in that very place."""
        place = self.place(tools)
        stamp = place / PROVEN
        return stamp.exists() and stamp.read_text(encoding="utf-8") == str(place)


TRIXIE = Home("trixie", "4.0: quorum and classic queues, metadata in Mnesia", (2, 41))
#: Only this one moves on.
SID = Home("sid", "4.3 or later: metadata in Khepri")
BOOKWORM = Home("bookworm", "3.10: mirrored queues", (2, 36))
#: In the order in which scenarios take them: partition handling still has an effect in the first one.
HOMES = (TRIXIE, SID, BOOKWORM)
#: Where the distribution is no Debian but has apt, such as Ubuntu: whatever broker it has.
DISTRIBUTION = Home("distribution", "of this distribution", (0,))


def places(tools: Path = TOOLS) -> Iterator[Path]:
    """Yield the folder of each home that is there, in the order in which scenarios take them."""
    yield from (home.place(tools) for home in (*HOMES, DISTRIBUTION) if home.is_there(tools))
