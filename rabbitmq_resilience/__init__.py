"""Break RabbitMQ clusters on purpose, and decide from what was recorded whether a promise was broken.

For use in Python, in addition to the fixture ``play`` of the pytest plugin:

- ``load(path)`` and ``parse(text)`` read a fault file, ``Scenario.model_validate`` takes the same as a mapping, and
  ``load_topology(path)`` reads a topology; each raises an error that says what is wrong, and where;
- ``play_scenario(scenario)`` plays it on a cluster of its own, ``recheck(folder)`` judges a run again without a
  broker; both return a ``Result``, whose ``verdict`` is a ``Verdict`` and whose ``run`` is a ``RunDirectory``;
- ``Fault`` and ``Invariant`` are the base classes of your own faults and invariants; entry points of the groups
  ``rabbitmq_resilience.faults``, ``.invariants`` and ``.topologies`` make them known.

Importing this package imports nothing heavy: each name above is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rabbitmq_resilience.checkers.verdict import Coverage, Finding, History, Verdict
    from rabbitmq_resilience.checkers.verdict import InvariantSpec as Invariant
    from rabbitmq_resilience.history.run_directory import RunDirectory
    from rabbitmq_resilience.model.topology import Topology
    from rabbitmq_resilience.model.topology_catalogue import read as load_topology
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
    "Coverage": "invariants.verdict:Coverage",
    "Fault": "faults.step:Step",
    "FaultFileError": "scenarios.fault_file:FaultFileError",
    "Finding": "invariants.verdict:Finding",
    "History": "invariants.verdict:History",
    "Invariant": "invariants.verdict:InvariantSpec",
    "Result": "play.judging:Result",
    "RunDirectory": "record.run_directory:RunDirectory",
    "Scenario": "scenarios.model:Scenario",
    "Topology": "clusters.spec:Topology",
    "Verdict": "invariants.verdict:Verdict",
    "load": "scenarios.fault_file:load",
    "load_topology": "clusters.catalogue:read",
    "parse": "scenarios.fault_file:parse",
    "play_scenario": "play.alone:play_scenario",
    "recheck": "play.alone:recheck",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
