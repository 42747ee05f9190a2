"""Define the base of all events of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self


class EventError(ValueError):
    """A line is no event that can be understood; the text says what the line lacks."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event at ``t_us``. An event of an unknown kind has only this base class."""

    kind: ClassVar[str] = ""

    t_us: int

    @classmethod
    def of_fields(cls, row: Mapping[str, Any]) -> Self:
        """Build the event from the fields of its line. Raise EventError if a required field is missing."""
        mine = {f.name: f for f in fields(cls)}
        missing = [n for n, f in mine.items() if n not in row and (f.default, f.default_factory) == (MISSING, MISSING)]
        if missing:
            raise EventError(f"an event of the kind {cls.kind or row.get('kind')!r} has no {', '.join(missing)}")
        return cls(**{name: row[name] for name in mine if name in row})

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of the event's line."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"t_us": values.pop("t_us"), "kind": self.kind, **values}
