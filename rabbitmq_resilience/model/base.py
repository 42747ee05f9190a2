"""The base of every value that a fault file can state."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """The base of every value in a fault file: it is frozen, and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def as_tuple(value: Any) -> Any:
    """Turn a list of a YAML file into a tuple, as a strict tuple field accepts no list."""
    return tuple(value) if isinstance(value, list) else value
