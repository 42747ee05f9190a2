"""What was published on one channel and is not confirmed yet."""

from __future__ import annotations


class Outstanding:
    """Places under way (``workloads.under_way``) by delivery tag. Tags count from 1 what is published on the channel,
    and each channel has its own (RabbitMQ, "Publisher Confirms")."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # in the order of tags
        self._last_tag = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def oldest(self) -> int | None:
        """The place of the message that waits for longest."""
        return next(iter(self._places.values()), None)

    def add(self, places: list[int]) -> None:
        """Of messages that are published now, in this order."""
        first = self._last_tag + 1
        self._last_tag += len(places)
        self._places.update(zip(range(first, first + len(places)), places, strict=True))

    def take(self, tag: int, *, multiple: bool) -> list[int]:
        """The places of that message, or with ``multiple`` of all up to it; nothing of what was taken before."""
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
