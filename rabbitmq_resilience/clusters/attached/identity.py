"""Whether the brokers to which there is a way in are those that answer: acts on others would be proven there, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rabbitmq_resilience.clusters.attached.broker import Broker, Process
from rabbitmq_resilience.clusters.attached.machine import Machine
from rabbitmq_resilience.clusters.broker.management import ManagementApi

#: Ticks in which kernels tell programs of time (proc(5), USER_HZ).
_TICKS_PER_S = 100
#: Brokers tell of their age every few seconds.
_APART_S_MAX = 30.0


def strangers(
    apis: Mapping[str, ManagementApi], machines: Mapping[str, Machine], brokers: Mapping[str, Broker]
) -> Iterator[str]:
    """In words, those whose process has another number or age than the management API tells. By Erlang names. Raises
    MachineError and ApiError where one cannot be asked."""
    for node, broker in brokers.items():
        process = broker.process()
        if node not in machines or not isinstance(process, Process):
            continue
        rows = apis[node].get("nodes", params={"columns": "name,os_pid,uptime"})
        told: dict[str, Any] = next((row for row in rows if row.get("name") == node), {})
        uptime_s = float(machines[node].run('cut -d" " -f1 /proc/uptime'))
        aged_s, age_s = uptime_s - process.started / _TICKS_PER_S, float(told.get("uptime", 0)) / 1000
        if str(process.pid) != str(told.get("os_pid")) or abs(aged_s - age_s) > _APART_S_MAX:
            yield (
                f"{node} answers as process {told.get('os_pid')}, {age_s:.0f} s old, and {machines[node].told} has "
                f"process {process.pid}, {aged_s:.0f} s old: another cluster is reached there"
            )
