"""List the homes that set-up makes: brokers of Debian's releases, each with the Erlang that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.locations import TOOLS

#: A file that is written last and holds the folder's own path: a moved or unfinished folder is no home.
PROVEN = "proven"


@dataclass(frozen=True)
class Home:
    """A release of Debian that has a broker.

    ``has``: which broker, for people. ``glibc``: the version of its C library, or () if it gets new versions."""

    release: str
    has: str
    glibc: tuple[int, ...] = ()

    @property
    def moves(self) -> bool:
        """Return whether newer packages replace those of the release from time to time."""
        return not self.glibc

    def place(self, tools: Path = TOOLS) -> Path:
        """Return the folder into which its packages are unpacked."""
        return tools / "brokers" / self.release

    def is_there(self, tools: Path = TOOLS) -> bool:
        """Return whether set-up has unpacked and proven the home in exactly that place."""
        place = self.place(tools)
        stamp = place / PROVEN
        return stamp.exists() and stamp.read_text(encoding="utf-8") == str(place)


TRIXIE = Home("trixie", "4.0: quorum and classic queues, metadata in Mnesia", (2, 41))
#: Only this release gets new versions.
SID = Home("sid", "4.3 or later: metadata in Khepri")
BOOKWORM = Home("bookworm", "3.10: mirrored queues", (2, 36))
#: In the order in which scenarios take them: partition handling still has an effect in the first one.
HOMES = (TRIXIE, SID, BOOKWORM)
#: The broker of a distribution that is not Debian but has apt, such as Ubuntu.
DISTRIBUTION = Home("distribution", "of this distribution", (0,))


def places(tools: Path = TOOLS) -> Iterator[Path]:
    """Yield the folder of each home that exists, in the order in which scenarios take them."""
    yield from (home.place(tools) for home in (*HOMES, DISTRIBUTION) if home.is_there(tools))
