"""List the kinds of workload. A new kind has one line here, and one in ``runner.load_kinds``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from rabbitmq_resilience.workload.application_model import ApplicationWorkload
from rabbitmq_resilience.workload.workload_base import WorkloadBase
from rabbitmq_resilience.workload.workload_model import Workload

GENERATED = "confirmed_publish"
APPLICATION = "application"

KINDS: Mapping[str, type[WorkloadBase]] = {GENERATED: Workload, APPLICATION: ApplicationWorkload}


def kind_of(value: Any) -> str:
    """Return the kind of a workload: of a mapping of a file, or of a ``WorkloadBase``. A file need not state it."""
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in KINDS else GENERATED


AnyWorkload = Annotated[
    Annotated[Workload, Tag(GENERATED)] | Annotated[ApplicationWorkload, Tag(APPLICATION)], Discriminator(kind_of)
]


def not_judged_of(workload: WorkloadBase) -> Mapping[str, list[str]]:
    """Return the invariants that cannot be judged of a workload, each with the kinds of which it can."""
    others = {name for kind in KINDS.values() for name in kind.own_invariants} - workload.own_invariants
    return {name: [kind for kind, model in KINDS.items() if name in model.own_invariants] for name in sorted(others)}
