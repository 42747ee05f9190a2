"""Break RabbitMQ clusters on purpose, and decide from what was recorded whether a promise was broken.

For use in Python, in addition to the fixture ``play`` of the pytest plugin:

- ``load(path)`` and ``parse(text)`` read a fault file, ``Scenario.model_validate`` takes the same as a mapping, and
  ``load_topology(path)`` reads a topology; each raises an error that says what is wrong, and where;
- ``play_scenario(scenario)`` plays it on a cluster of its own, ``recheck(folder)`` judges a run again without a
  broker; both return a ``Result``, whose ``verdict`` is a ``Verdict`` and whose ``run`` is a ``RunDirectory``;
- ``Fault`` and ``Invariant`` are the base classes of your own faults and invariants, and ``Footprint`` is what a fault
  may touch; entry points of the groups ``rabbitmq_resilience.faults``, ``.invariants`` and ``.topologies`` make them
  known.

Importing this package imports nothing heavy: each name above is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rabbitmq_resilience import former_paths

if TYPE_CHECKING:
    from rabbitmq_resilience.checkers.verdict import Coverage, Finding, History, Verdict
    from rabbitmq_resilience.checkers.verdict import InvariantSpec as Invariant
    from rabbitmq_resilience.history.run_directory import RunDirectory
    from rabbitmq_resilience.model.topology import Topology
    from rabbitmq_resilience.model.topology_catalogue import read as load_topology
    from rabbitmq_resilience.nemesis.footprint import Footprint
    from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault as Fault
    from rabbitmq_resilience.runner.alone import play_scenario, recheck
    from rabbitmq_resilience.runner.judging import Result
    from rabbitmq_resilience.scenario.fault_file import FaultFileError, load, parse
    from rabbitmq_resilience.scenario.model import Scenario

__all__ = [
    "Coverage",
    "Fault",
    "FaultFileError",
    "Finding",
    "Footprint",
    "History",
    "Invariant",
    "Result",
    "RunDirectory",
    "Scenario",
    "Topology",
    "Verdict",
    "load",
    "load_topology",
    "parse",
    "play_scenario",
    "recheck",
]

_WHERE = {
    "Coverage": "checkers.verdict:Coverage",
    "Fault": "nemesis.scheduled_fault:ScheduledFault",
    "FaultFileError": "scenario.fault_file:FaultFileError",
    "Finding": "checkers.verdict:Finding",
    "Footprint": "nemesis.footprint:Footprint",
    "History": "checkers.verdict:History",
    "Invariant": "checkers.verdict:InvariantSpec",
    "Result": "runner.judging:Result",
    "RunDirectory": "history.run_directory:RunDirectory",
    "Scenario": "scenario.model:Scenario",
    "Topology": "model.topology:Topology",
    "Verdict": "checkers.verdict:Verdict",
    "load": "scenario.fault_file:load",
    "load_topology": "model.topology_catalogue:read",
    "parse": "scenario.fault_file:parse",
    "play_scenario": "runner.alone:play_scenario",
    "recheck": "runner.alone:recheck",
}

former_paths.install()


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
