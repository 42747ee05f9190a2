"""Load presets, which are published loads known by name: one YAML file each in ``presets/``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.tools.entry_points import extensions
from rabbitmq_resilience.tools.locations import content
from rabbitmq_resilience.workload.workload_model import Workload

FOLDER = content("presets")

#: The keys that ``workload:`` may have in addition to the fields of a load.
FIELDS = ("preset", "scale")


class UnknownPresetError(LookupError):
    """No preset has that name; the text suggests a similar name, or lists the known ones."""

    def __init__(self, name: object, known: tuple[str, ...]) -> None:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
        super().__init__(f"there is no preset {name!r}; {hint}")


class BadPresetError(ValueError):
    """A file does not describe a preset, or the preset cannot be scaled by the given factor."""


class Preset(Spec):
    """A published load.

    - ``source``: the publication. ``what``: a description of the load, and what the publication leaves open.
    - ``published``: the load as published, as a workload.
    - ``here``: the fields that differ on this project's machine, whose two cores run brokers and clients.
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
        """Return the preset's workload fields: those for here, or with ``scale`` the published ones times it.

        Raise BadPresetError if the load cannot be scaled.
        """
        if scale is None:
            return self._fields_here
        try:
            scaled = Workload.model_validate(self.published).scaled(scale)
        except ValueError as error:
            raise BadPresetError(str(error)) from None
        return scaled.model_dump(mode="json", include=set(self.published))

    def workload(self, *, scale: float | None = None, **fields: Any) -> Workload:
        """Return the load, with ``fields`` in place of its own. Raise ValueError if that is no workload."""
        return Workload.model_validate({**self.fields(scale=scale), **fields})


def folders() -> tuple[Path, ...]:
    """Return the project's folder, and those of entry points of the group ``rabbitmq_resilience.presets``."""
    return (FOLDER, *(Path(folder) for folder in extensions("presets").values()))


def names(*within: Path) -> tuple[str, ...]:
    """Return the names of the presets in all folders, or in the given ones."""
    return tuple(sorted({path.stem for folder in within or folders() for path in folder.glob("*.yaml")}, key=_in_order))


@cache
def load(name: str, *within: Path) -> Preset:
    """Return the preset with that name. Raise UnknownPresetError or BadPresetError if it cannot be read."""
    for folder in within or folders():
        path = folder / f"{name}.yaml"
        if path in folder.glob("*.yaml"):  # any name is safe so, also one with a path
            return _read(path)
    raise UnknownPresetError(name, names(*within))


def merged(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a fault file's ``workload:`` merged into its preset. Own fields replace whole fields of it.

    Raise UnknownPresetError if there is no such preset, and BadPresetError if it or the scale is wrong.
    """
    own = {field: value for field, value in stated.items() if field not in FIELDS}
    scale = stated.get("scale")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float) or not scale > 0):
        raise BadPresetError(f"scale is a factor over 0 for the published load, not {scale!r}")
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
    """Return a sort key by which low_latency_5 comes before low_latency_20."""
    stem, _, number = name.rpartition("_")
    return (stem, int(number)) if number.isdigit() else (name, 0)
