"""Read steps in the spelling of version 0.1, in which some faults had names of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml


def _as_balancer(value: Any) -> Any:
    """Return the target that a value of the former field ``balancer`` means; it never means a broker."""
    return value if not isinstance(value, str) or value.startswith("balancer:") else f"balancer:{value}"


@dataclass(frozen=True)
class FormerFault:
    """The present spelling of a former fault: its name, the present names of fields, and fields that it implied."""

    fault: str
    fields: Mapping[str, str]
    implied: Mapping[str, Any] = field(default_factory=dict)
    value: Callable[[Any], Any] = lambda value: value

    def of(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """Return the step in the present spelling. A field that has its present name, too, stays and is refused."""
        renamed = {name: self.fields[name] for name in step if name in self.fields and self.fields[name] not in step}
        present = {renamed.get(name, name): self.value(v) if name in renamed else v for name, v in step.items()}
        return {**self.implied, **present, "fault": self.fault}


#: The former faults by name.
FORMER_FAULTS: Mapping[str, FormerFault] = {
    "kill_balancer": FormerFault("kill", {"balancer": "node"}, value=_as_balancer),
    "pause_balancer": FormerFault("pause", {"balancer": "node"}, value=_as_balancer),
    "packet_loss": FormerFault("netem", {"percent": "loss_percent"}, implied={"by": "iptables"}),
    "packet_delay": FormerFault("netem", {}),
    "packet_rate": FormerFault("netem", {}),
    "packet_corrupt": FormerFault("netem", {"percent": "corrupt_percent"}),
    "packet_duplicate": FormerFault("netem", {"percent": "duplicate_percent"}),
}


def present_step(step: Any) -> Any:
    """Return a step as a file states it, in the present spelling. Anything else is returned unchanged."""
    former = _former(step)
    return step if former is None else former.of(step)


def with_present_steps(plain: Any) -> Any:
    """Return the fields of a scenario with its schedule in the present spelling; anything else unchanged."""
    schedule = plain.get("schedule") if isinstance(plain, Mapping) else None
    if not isinstance(schedule, list | tuple) or not any(map(_former, schedule)):
        return plain
    return {**plain, "schedule": [present_step(step) for step in schedule]}


def advice(step: Any) -> str | None:
    """Return what to write in place of a former fault, as YAML; None if the step has the present spelling."""
    former = _former(step)
    if former is None:
        return None
    changed = {name: value for name, value in former.of(step).items() if name not in step or value != step[name]}
    ordered = {"fault": former.fault, **changed}
    return str(yaml.safe_dump(ordered, default_flow_style=True, sort_keys=False, width=1000)).strip().strip("{}")


def _former(step: Any) -> FormerFault | None:
    name = step.get("fault") if isinstance(step, Mapping) else None
    return FORMER_FAULTS.get(name) if isinstance(name, str) else None
