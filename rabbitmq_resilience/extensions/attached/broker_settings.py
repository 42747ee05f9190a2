"""Check that brokers have the settings that a cluster file states, if there is a way to ask them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.machine import Machine, tool_script

_ASK_TIMEOUT_S = 60.0

#: Returns how the broker handles partitions (rabbit.app, ``cluster_partition_handling``), and its ``net_ticktime``
#: (net_kernel(3)), or the value to which that is being changed. Changes nothing.
ASK = "{application:get_env(rabbit, cluster_partition_handling), net_kernel:get_net_ticktime()}."
_ANSWER = re.compile(r"\{\{ok,(?P<handling>.*)\},\s*(?:\{\w+,\s*)?(?P<ticktime>\d+)\}+", re.DOTALL)


def contrary(stated: ClusterFile, machines: Mapping[str, Machine]) -> list[str]:
    """Return, in words, which settings of brokers differ from the file. Raise MachineError if one cannot be asked."""

    def at(node: str) -> list[str]:
        answer = machines[node].run(tool_script(node, "rabbitmqctl", "eval", ASK), timeout_s=_ASK_TIMEOUT_S)
        return [f"{node} has {text}" for text in _contrary(stated, answer)]

    with ThreadPoolExecutor(max_workers=max(1, len(machines))) as pool:
        return [text for texts in pool.map(at, machines) for text in texts]


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of a broker. ``handling``: the words of its partition handling: the mode, nodes, and recovery."""

    handling: tuple[str, ...]
    net_ticktime_s: int


def understood(answer: str) -> BrokerSettings | None:
    """Parse the answer to ``ASK``; return None if it has another form."""
    found = _ANSWER.search(answer)
    if found is None:
        return None
    return BrokerSettings(tuple(re.findall(r"[^\s\[\]{},']+", found["handling"])), int(found["ticktime"]))


def _contrary(stated: ClusterFile, answer: str) -> Iterator[str]:
    found = understood(answer)
    if found is None:
        yield f"settings that could not be parsed: {answer.strip()[:200]}"
        return
    wanted = {str(stated.partition_handling)}
    if stated.pause_if_all_down is not None:
        wanted |= {*stated.pause_if_all_down.nodes, stated.pause_if_all_down.recover}
    if {*found.handling} != wanted:
        yield f"partition_handling {' '.join(found.handling)}, but the file states {' '.join(sorted(wanted))}"
    if found.net_ticktime_s != stated.net_ticktime_s:
        yield f"net_ticktime {found.net_ticktime_s}, but the file states net_ticktime_s: {stated.net_ticktime_s}"
