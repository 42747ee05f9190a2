"""Read cluster files: YAML about an existing cluster, refused with line and field before anything is touched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rabbitmq_resilience.extensions.attached.cluster_model import BY_REFERENCE, SECRETS, ClusterFile
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.yaml_files import (
    FileKind,
    FileRefusedError,
    Lines,
    Location,
    Problem,
    ProblemError,
    model_fields_at,
    no_field_takes,
    parsed,
    read_text,
    type_problems,
)


class ClusterFileError(FileRefusedError):
    """The cluster file is refused."""


@dataclass(frozen=True)
class KnownCluster:
    """A cluster file that was read: what it states, our credentials, and its path.

    Paths in the file are relative to its folder.
    """

    stated: ClusterFile
    access: Access
    path: Path


def load(path: Path) -> KnownCluster:
    """Parse and validate a whole cluster file, and read the credentials that it names.

    Raise ClusterFileError, and no other error, if the file is refused.
    """
    path = Path(path)
    try:
        document = parsed(read_text(path, _KIND), _KIND)
        plain = json.dumps(document.plain, allow_nan=False)
        stated = ClusterFile.model_validate_json(plain, strict=True)
    except ProblemError as error:
        raise ClusterFileError(str(path), [error.problem]) from None
    except ValidationError as error:
        found = dict.fromkeys(_placed(one, document.lines) for one in type_problems(error, document.lines, _KIND))
        raise ClusterFileError(str(path), list(found)) from None
    except (TypeError, ValueError) as error:
        raise ClusterFileError(str(path), [Problem((), None, no_field_takes(error, _KIND))]) from None
    try:
        access = stated.access(path.parent)
    except ValueError as error:
        field, _, text = str(error).partition(": ")
        raise ClusterFileError(str(path), [Problem((field,), document.lines.of((field,)), text)]) from None
    try:
        access.tls()
    except OSError as error:  # ssl.SSLError is one
        text = f"{access.ca} holds no certificates: {error.strerror or error}"
        raise ClusterFileError(str(path), [Problem(("ca",), document.lines.of(("ca",)), text)]) from None
    return KnownCluster(stated, access, path)


def _placed(problem: Problem, lines: Lines) -> Problem:
    """Return a problem of several fields with the location that its text begins with, as in ``offers.ssh: TEXT``."""
    field, _, text = problem.text.partition(": ")
    stated = tuple(field.split("."))
    location = stated
    while location and not lines.has(location):
        location = location[:-1]
    if problem.location or not location:
        return problem
    return Problem(location, lines.of(location), text if location == stated else problem.text)


def _fields_at(loc: Location) -> tuple[str, ...]:
    return model_fields_at(ClusterFile, loc, lambda _: None)


_KIND = FileKind("cluster file", _fields_at, echoes=False, fixed_messages=dict.fromkeys(SECRETS, BY_REFERENCE))
