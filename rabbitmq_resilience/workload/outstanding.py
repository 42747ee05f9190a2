"""Keep the messages that were published on one channel and are not confirmed yet."""

from __future__ import annotations


class Outstanding:
    """The places of unconfirmed messages (``workload.under_way``) by delivery tag.

    Each channel counts its published messages from 1; this count is the tag (RabbitMQ, "Publisher Confirms").
    """

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # in the order of tags
        self._last_tag = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def oldest(self) -> int | None:
        """Return the place of the message that has waited longest, or None if there is none."""
        return next(iter(self._places.values()), None)

    def add(self, places: list[int]) -> None:
        """Add the places of messages that are published now, in this order."""
        first = self._last_tag + 1
        self._last_tag += len(places)
        self._places.update(zip(range(first, first + len(places)), places, strict=True))

    def take(self, tag: int, *, multiple: bool) -> list[int]:
        """Remove and return the place of that message, or with ``multiple`` those of all messages up to it.

        Messages that were removed before are skipped.
        """
        if not multiple:
            place = self._places.pop(tag, None)
            return [] if place is None else [place]
        tags = []
        for waiting in self._places:
            if waiting > tag:
                break
            tags.append(waiting)
        return [self._places.pop(waiting) for waiting in tags]

    def take_all(self) -> list[int]:
        return self.take(self._last_tag, multiple=True)
