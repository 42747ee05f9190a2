"""The topologies that are known by name: one YAML file each, beside this module."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from topologies.spec import Topology

FOLDER = Path(__file__).resolve().parent


class UnknownTopologyError(LookupError):
    """No topology has that name; the text lists those that are known."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no topology {name!r}; known are {', '.join(known) or 'none'}")


class BadTopologyError(ValueError):
    """A file of the catalogue does not describe a topology."""


def names(folder: Path = FOLDER) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load(name: str, folder: Path = FOLDER) -> Topology:
    """The topology of that name. Paths in it are taken from the folder of its file."""
    known = names(folder)
    if name not in known:
        raise UnknownTopologyError(name, known)
    path = folder / f"{name}.yaml"
    try:
        topology = Topology.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise BadTopologyError(f"{path}: {error}") from error
    if topology.name != name:
        raise BadTopologyError(f"{path} is named {topology.name!r} inside; make the two equal")
    files = ("rabbitmq_conf", "advanced_config", "definitions")
    found = {field: folder / value for field in files if (value := getattr(topology, field)) is not None}
    return topology.model_copy(update=found)
