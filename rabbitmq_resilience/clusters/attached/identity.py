"""Whether the brokers to which there is a way in are those that answer: acts on others would be proven there, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rabbitmq_resilience.clusters.attached.broker import Broker, Process
from rabbitmq_resilience.clusters.attached.machine import Machine
from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Ticks in which kernels tell programs of time (proc(5), USER_HZ).
_TICKS_PER_S = 100
#: Brokers tell of their age every few seconds.
_APART_S_MAX = 30.0
#: One that is back tells of itself only after a while.
TOLD_WITHIN_S = 30.0
#: Why one may not do so for longer.
SILENT = (
    "a broker whose statistics have failed too often tells nothing of itself until it is started again: restart it, or "
    "delete its pod"
)


def _told(api: ManagementApi, node: str) -> dict[str, Any]:
    """What a node tells of itself; empty until it does."""
    rows: list[dict[str, Any]] = api.get("nodes", params={"columns": "name,os_pid,uptime"})
    return next((row for row in rows if row.get("name") == node and row.get("os_pid")), {})


def strangers(
    apis: Mapping[str, ManagementApi], machines: Mapping[str, Machine], brokers: Mapping[str, Broker]
) -> Iterator[str]:
    """In words, those that answer and have no process where we would act on it, or one of another number or age than
    the management API tells; of a process that only has a name nobody knows those. By Erlang names. Raises
    MachineError where a machine cannot be asked."""
    for node, broker in brokers.items():
        process = broker.process()
        if process is None:
            where = f"{machines[node].told} has no process of it" if node in machines else "process: tells of none"
            yield f"{node} answers, and {where}: another machine is reached there"
            continue
        if node not in machines or not isinstance(process, Process):
            continue
        try:
            told = wait_until(partial(_told, apis[node], node), timeout_s=TOLD_WITHIN_S, what="its process")
        except (WaitTimeout, ApiError, ApiUnreachable):
            told_by = machines[node].told
            yield f"{node} does not tell of its process, so nobody knows whether {told_by} has it: {SILENT}"
            continue
        uptime_s = float(machines[node].run('cut -d" " -f1 /proc/uptime'))
        aged_s, age_s = uptime_s - process.started / _TICKS_PER_S, float(told.get("uptime", 0)) / 1000
        if str(process.pid) != str(told.get("os_pid")) or abs(aged_s - age_s) > _APART_S_MAX:
            yield (
                f"{node} answers as process {told.get('os_pid')}, {age_s:.0f} s old, and {machines[node].told} has "
                f"process {process.pid}, {aged_s:.0f} s old: another cluster is reached there"
            )
