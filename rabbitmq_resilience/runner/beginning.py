"""Begin a load: wait until all clients are connected, let publishers begin, and wait for messages to arrive."""

from __future__ import annotations

from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workload.exchanges import await_bound
from rabbitmq_resilience.workload.running_workload import RunningWorkload
from rabbitmq_resilience.workload.worker import LoadNotBegunError
from rabbitmq_resilience.workload.workload_model import Workload

LOAD_FLOWS_WITHIN_S = 90.0


def await_flow(load: RunningWorkload, cluster: Endpoints, workload: Workload, *, connected_within_s: float) -> None:
    """Wait until every client is connected and messages arrive, so that the steady phase is steady.

    Raise LoadNotBegunError if that does not happen in time.
    """
    load.await_connected(timeout_s=connected_within_s)
    await_bound(cluster, workload, vhost=load.vhost)
    load.publish()
    consumed = len(load.early_consumers) > 0
    try:
        wait_until(
            lambda: load.progress().confirmed > 0 and (load.progress().received > 0 or not consumed),
            timeout_s=LOAD_FLOWS_WITHIN_S,
            what="the first confirms and deliveries",
        )
    except WaitTimeout as error:
        seen = load.progress()
        raise LoadNotBegunError(
            f"of {seen.published:,} messages {seen.confirmed:,} were confirmed and {seen.received:,} received "
            f"{LOAD_FLOWS_WITHIN_S:g} s after all clients had connected{_alarm_text(cluster)}"
        ) from error


def _alarm_text(cluster: Endpoints) -> str:
    """Return which alarms of brokers are on, and what mends them; '' if none are or no broker answers."""
    try:
        alarms = sorted(cluster.api(cluster.topology.node_names[0]).alarms())
    except (ApiError, ApiUnreachable):
        return ""
    if not alarms:
        return ""
    listed = ", ".join(f"{resource} of {node}" for node, resource in alarms)
    return f"; brokers block publishers by an alarm ({listed}): free memory or space on the disk that they use"
