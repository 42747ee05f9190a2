"""Find and read the topologies that are known by name: one YAML file each in ``topologies/``."""

from __future__ import annotations

from pathlib import Path

import yaml

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.tools.entry_points import extensions
from rabbitmq_resilience.tools.locations import content

FOLDER = content("topologies")


class UnknownTopologyError(LookupError):
    """No topology has that name. The text lists the known names."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no topology {name!r}; known are {', '.join(known) or 'none'}")


class BadTopologyError(ValueError):
    """A file of the catalogue does not describe a topology."""


def folders() -> tuple[Path, ...]:
    """Return the folders of topologies: this package's own, and those that entry points of the group
    ``rabbitmq_resilience.topologies`` name, each a ``Path``."""
    return (FOLDER, *(Path(folder) for folder in extensions("topologies").values()))


def names(*within: Path) -> tuple[str, ...]:
    """Return the names of all topologies in the given folders; without any, in all folders."""
    return tuple(sorted({path.stem for folder in within or folders() for path in folder.glob("*.yaml")}))


def load(name: str, *within: Path) -> Topology:
    """Return the topology named ``name``. Paths in it are relative to its file's folder. Raise UnknownTopologyError or
    BadTopologyError."""
    for folder in within or folders():
        path = folder / f"{name}.yaml"
        if path.name in {found.name for found in folder.glob("*.yaml")}:  # safe even if the name holds a slash
            topology = read(path)
            if topology.name != name:
                raise BadTopologyError(f"{path} is named {topology.name!r} inside; make the two equal")
            return topology
    raise UnknownTopologyError(name, names(*within))


def read(path: Path) -> Topology:
    """Return the topology of a file. Paths in it are relative to the file's folder. Raise BadTopologyError if the file
    describes no topology."""
    path = Path(path)
    try:
        topology = Topology.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadTopologyError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise BadTopologyError(f"{path}: {error}") from error
    files = ("rabbitmq_conf", "advanced_config", "definitions")
    found = {field: path.parent / value for field in files if (value := getattr(topology, field)) is not None}
    return topology.model_copy(update=found)
