"""Let imports by the paths of version 0.1 go on: rooms and modules have other names since.

``import rabbitmq_resilience.invariants.judge`` gives the module ``rabbitmq_resilience.checkers.judge``. Faults and
checkers of users import by such paths. They keep working for one release.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = __name__.rpartition(".")[0]

#: The former path of a room, and the present one, inside the package.
ROOMS: Mapping[str, str] = {
    "clusters": "sut",
    "faults": "nemesis",
    "invariants": "checkers",
    "pages": "report",
    "play": "runner",
    "random_schedules": "explore",
    "record": "history",
    "scenarios": "scenario",
    "workloads": "workload",
}
#: The same of modules whose names changed too.
MODULES: Mapping[str, str] = {
    "clusters.alert_rules": "model.alert_rules",
    "clusters.equipment": "model.node_options",
    "clusters.errors": "model.errors",
    "clusters.packets": "model.packets",
    "clusters.settings": "model.settings",
    "clusters.spec": "model.topology",
    "faults.catalogue": "nemesis.fault_catalogue",
    "faults.packets": "nemesis.packet_faults",
    "faults.sides": "nemesis.partition_sides",
    "faults.step": "nemesis.scheduled_fault",
    "invariants.catalogue": "checkers.checker_catalogue",
    "invariants.ledger": "checkers.message_ledger",
    "invariants.recorded": "checkers.recorded_history",
    "invariants.steps": "checkers.observed_faults",
    "record.letters": "history.dead_letter_routes",
    "workloads.spec": "workload.workload_model",
}
#: Classes that are looked for in a former module, and are called otherwise or stand elsewhere now.
NAMES: Mapping[str, Mapping[str, str]] = {
    "clusters.protocol": {
        "Links": "sut.link_protocol:Links",
        "LoadBalancers": "sut.node_protocol:LoadBalancers",
        "NodeState": "sut.node_protocol:NodeState",
        "ProcessState": "sut.node_protocol:ProcessState",
        "Upgradable": "sut.node_protocol:Upgradable",
    },
    "clusters.spec": {
        "Delay": "model.network_settings:Delay",
        "Link": "model.links:Link",
        "Node": "model.links:Node",
        "Spec": "model.base:Spec",
    },
    "faults.step": {"Step": "nemesis.scheduled_fault:ScheduledFault"},
    "invariants.steps": {"Step": "checkers.observed_faults:ObservedFault"},
    "play.judging": {"meets": "runner.endings:meets"},
    "record.letters": {"Letters": "history.dead_letter_routes:DeadLetterRoutes"},
}


class _Former(ModuleType):
    """A former module whose names are looked up in the present ones."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # above all the path, by which modules would be imported a second time
            raise AttributeError(name)
        former = self.__name__.removeprefix(f"{PACKAGE}.")
        elsewhere = NAMES.get(former, {}).get(name)
        if elsewhere is not None:
            module, _, name = elsewhere.partition(":")
            return getattr(import_module(f"{PACKAGE}.{module}"), name)
        found: object = getattr(import_module(f"{PACKAGE}.{present_path(former)}"), name)
        return found


class _FormerPaths(MetaPathFinder, Loader):
    """Find modules by their former paths."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system passes it
        target: ModuleType | None = None,  # noqa: ARG002 - the import system passes it
    ) -> ModuleSpec | None:
        """Return the specification of a former module; None if there was no such room."""
        former = fullname.removeprefix(f"{PACKAGE}.")
        if former == fullname or former.partition(".")[0] not in ROOMS:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that looks up its names in the present one. Raise ModuleNotFoundError if there is none."""
        former = spec.name.removeprefix(f"{PACKAGE}.")
        present = import_module(f"{PACKAGE}.{present_path(former)}")
        module = _Former(spec.name, present.__doc__)
        module.__all__ = [name for name in vars(present) if not name.startswith("_")]  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: names are looked up when they are asked for."""


def present_path(former: str) -> str:
    """Return the present path of a former one: ``checkers.judge`` for ``invariants.judge``."""
    if former in MODULES:
        return MODULES[former]
    room, dot, rest = former.partition(".")
    return f"{ROOMS[room]}{dot}{rest}"


def install() -> None:
    """Let Python's import ask this module for former paths, once."""
    if not any(isinstance(finder, _FormerPaths) for finder in sys.meta_path):
        sys.meta_path.append(_FormerPaths())
