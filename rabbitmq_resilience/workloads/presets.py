"""The loads that are known by name: one YAML file each in ``presets/``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, model_validator

from rabbitmq_resilience.clusters.spec import Spec
from rabbitmq_resilience.tools.extensions import extensions
from rabbitmq_resilience.tools.locations import content
from rabbitmq_resilience.workloads.spec import Workload

FOLDER = content("presets")

#: What ``workload:`` may state beside the fields of a load.
FIELDS = ("preset", "scale")


class UnknownPresetError(LookupError):
    """No preset has that name; the text says which is near, or lists those that are known."""

    def __init__(self, name: object, known: tuple[str, ...]) -> None:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
        super().__init__(f"there is no preset {name!r}; {hint}")


class BadPresetError(ValueError):
    """A file does not describe a preset, or it cannot be scaled as was asked for."""


class Preset(Spec):
    """A load that a publication tells of.

    - ``source``: who told it, and of what; ``what``: what it is about, and what is not known of it.
    - ``published``: the load as it was there, as a workload.
    - ``here``: the fields that differ here, where a machine with two cores runs brokers and clients.
    """

    source: Annotated[str, Field(min_length=1)]
    what: Annotated[str, Field(min_length=1)]
    published: dict[str, Any]
    here: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _both_are_workloads(self) -> Preset:
        for name, fields in {"published": self.published, "here": self._fields_here}.items():
            try:
                Workload.model_validate(fields)
            except ValueError as error:
                raise ValueError(f"{name} is no workload: {error}") from None
        return self

    @property
    def _fields_here(self) -> Mapping[str, Any]:
        return {**self.published, **self.here}

    def fields(self, *, scale: float | None = None) -> Mapping[str, Any]:
        """Those that it states of a workload: as it is here, or what was published times ``scale``. Raises
        BadPresetError."""
        if scale is None:
            return self._fields_here
        try:
            scaled = Workload.model_validate(self.published).scaled(scale)
        except ValueError as error:
            raise BadPresetError(str(error)) from None
        return scaled.model_dump(mode="json", include=set(self.published))

    def workload(self, *, scale: float | None = None, **fields: Any) -> Workload:
        """The load, with ``fields`` in place of its own. Raises ValueError."""
        return Workload.model_validate({**self.fields(scale=scale), **fields})


def folders() -> tuple[Path, ...]:
    """Ours, and those that entry points of the group ``rabbitmq_resilience.presets`` name, each a ``Path``."""
    return (FOLDER, *(Path(folder) for folder in extensions("presets").values()))


def names(*within: Path) -> tuple[str, ...]:
    """Of all folders, or of those given."""
    return tuple(sorted({path.stem for folder in within or folders() for path in folder.glob("*.yaml")}, key=_in_order))


@cache
def load(name: str, *within: Path) -> Preset:
    """The preset of that name. Raises UnknownPresetError, BadPresetError."""
    for folder in within or folders():
        path = folder / f"{name}.yaml"
        if path in folder.glob("*.yaml"):  # whatever the name holds
            return _read(path)
    raise UnknownPresetError(name, names(*within))


def merged(stated: Mapping[str, Any]) -> dict[str, Any]:
    """``workload:`` of a fault file with all that its preset states, and what it states itself in place of that, whole
    fields at a time. Raises UnknownPresetError, BadPresetError."""
    own = {field: value for field, value in stated.items() if field not in FIELDS}
    scale = stated.get("scale")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not scale > 0):
        raise BadPresetError(f"scale is a number over 0, as a part of what was published, not {scale!r}")
    name = stated.get("preset")
    if not isinstance(name, str):
        raise UnknownPresetError(name, names())
    return {**load(name).fields(scale=scale), **own}


def _read(path: Path) -> Preset:
    try:
        return Preset.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadPresetError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadPresetError(f"{path}: {error}") from None


def _in_order(name: str) -> tuple[str, int]:
    """low_latency_5 comes before low_latency_20."""
    stem, _, number = name.rpartition("_")
    return (stem, int(number)) if number.isdigit() else (name, 0)
