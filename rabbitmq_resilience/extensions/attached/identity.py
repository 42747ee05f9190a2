"""Check that the brokers that can be acted on are those that answer; acts on others would seem proven there, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rabbitmq_resilience.extensions.attached.foreign_broker import ForeignBroker, MachineProcess
from rabbitmq_resilience.extensions.attached.machine import Machine
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: The unit of times in proc(5) (USER_HZ).
_TICKS_PER_S = 100
#: How far two ages of one broker may differ: brokers report theirs every few seconds.
_APART_S_MAX = 30.0
#: A broker that is back reports on itself only after a while.
REPORTED_WITHIN_S = 30.0
#: Why a broker may not do so for longer.
SILENT = (
    "a broker whose statistics have failed too often reports nothing about itself until it is started again: restart "
    "it, or delete its pod"
)


def _own_row(api: ManagementApi, node: str) -> dict[str, Any]:
    """Return what a node reports about itself; empty until it does."""
    rows: list[dict[str, Any]] = api.get("nodes", params={"columns": "name,os_pid,uptime"})
    return next((row for row in rows if row.get("name") == node and row.get("os_pid")), {})


def strangers(
    apis: Mapping[str, ManagementApi], machines: Mapping[str, Machine], brokers: Mapping[str, ForeignBroker]
) -> Iterator[str]:
    """Yield, in words, the brokers that answer but are not where we would act on them.

    Such a broker has no process there, or one of another number or age than the management API reports. A process
    that only has a name cannot be compared. All mappings have Erlang names as keys. Raise MachineError if a machine
    cannot be asked.
    """
    for node, broker in brokers.items():
        process = broker.process()
        if process is None:
            where = (
                f"{machines[node].description} has no process of it"
                if node in machines
                else "its command process: shows none"
            )
            yield f"{node} answers, but {where}: another machine is reached there"
            continue
        if node not in machines or not isinstance(process, MachineProcess):
            continue
        try:
            row = wait_until(partial(_own_row, apis[node], node), timeout_s=REPORTED_WITHIN_S, what="its process")
        except (WaitTimeout, ApiError, ApiUnreachable):
            there = machines[node].description
            yield f"{node} does not report its process, so it is unknown whether {there} has it: {SILENT}"
            continue
        uptime_s = float(machines[node].run('cut -d" " -f1 /proc/uptime'))
        aged_s, age_s = uptime_s - process.started / _TICKS_PER_S, float(row.get("uptime", 0)) / 1000
        if str(process.pid) != str(row.get("os_pid")) or abs(aged_s - age_s) > _APART_S_MAX:
            yield (
                f"{node} answers as process {row.get('os_pid')}, {age_s:.0f} s old, but {machines[node].description} "
                f"has process {process.pid}, {aged_s:.0f} s old: another cluster is reached there"
            )
