"""Convert between two forms of the same: ``between: [a1, rest]`` and ``links: "a1 <-> rest"``.

Every fault on links takes both. A step keeps the form that its fault defines; the other form is converted on reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rabbitmq_resilience.nemesis.targets import split_links

BETWEEN_SCHEMA = {
    "between": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 7},
    "one_way": {"type": "boolean", "default": False},
}
LINKS_SCHEMA = {"links": {"type": "string"}}


def as_links(stated: Any) -> Any:
    """Return the fields of a step with ``links`` in place of ``between`` and ``one_way``. Raise ValueError if both
    forms are given, or if the sides are no list of names."""
    if not isinstance(stated, Mapping) or "between" not in stated:
        return stated
    _refuse_both(stated)
    rest = dict(stated)
    sides, one_way = rest.pop("between"), rest.pop("one_way", False)
    if not isinstance(sides, list | tuple) or len(sides) < 2 or not all(isinstance(side, str) for side in sides):
        raise ValueError(f"between: {sides!r} is no list of two or more sides; write it as [a1, rest]")
    if one_way and len(sides) != 2:
        raise ValueError(f"one_way is from one side to another, and between names {len(sides)}; name two")
    return {**rest, "links": (" -> " if one_way else " <-> ").join(sides)}


def as_between(stated: Any, *, directed: bool) -> Any:
    """Return the fields of a step with ``between`` in place of ``links``, and with ``one_way`` if the fault is
    ``directed``. Raise ValueError if both forms are given, if ``links`` is no link, or if it has one direction and the
    fault cannot."""
    if not isinstance(stated, Mapping):
        return stated
    _refuse_both(stated)
    rest = dict(stated)
    if "links" not in stated:
        # The step is a plain mapping by now, and a strict tuple accepts no list.
        sides = rest.get("between")
        return {**rest, "between": tuple(sides)} if isinstance(sides, list) else rest
    links = rest.pop("links")
    if not isinstance(links, str):
        raise ValueError(f"links: {links!r} is no link; write it as 'zone:a <-> zone:b'")
    sides, both = split_links(links)
    if both:
        return {**rest, "between": tuple(sides)}
    if not directed:
        raise ValueError(f"links: {links!r} has one direction, and this fault acts in both; write it with <->")
    return {**rest, "between": tuple(sides), "one_way": True}


def _refuse_both(stated: Mapping[str, Any]) -> None:
    if "links" in stated and "between" in stated:
        raise ValueError("links and between mean the same in two forms; write one of them")


def either_of(schema: dict[str, Any], _model: type, *, own: str, other: str, more: Mapping[str, Any]) -> None:
    """Let the JSON schema of a step take the other form too. ``more`` are the fields of the other form."""
    for name, field in more.items():
        schema["properties"].setdefault(name, field)
    schema["required"] = [name for name in schema["required"] if name != own]
    schema["oneOf"] = [{"required": [own]}, {"required": [other]}]
