"""Run an application as the load of a run: its processes behind a tap, and what the tap shows of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.events import ApplicationEvent, WireEvent, WorkerEvent
from rabbitmq_resilience.history.history import Outcome, now_us
from rabbitmq_resilience.history.wire_connections import followed
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.tap.tap import Tap
from rabbitmq_resilience.tap.wire_history import Mode
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workload.application_advice import advised, unjudged
from rabbitmq_resilience.workload.application_history import Application, ApplicationHistory
from rabbitmq_resilience.workload.application_model import ROLE, ApplicationWorkload
from rabbitmq_resilience.workload.application_processes import ApplicationInstance, end_all, environment_of, run_image
from rabbitmq_resilience.workload.application_queues import ApplicationQueues, declared
from rabbitmq_resilience.workload.awaited_messages import AwaitedMessages
from rabbitmq_resilience.workload.committed_work import EARLY_US, CommittedWork, epoch_us
from rabbitmq_resilience.workload.delivery_order import DeliveryOrder
from rabbitmq_resilience.workload.drain import Depths, DepthsUnknown, DrainResult
from rabbitmq_resilience.workload.process_guard import ProcessGuard
from rabbitmq_resilience.workload.running_workload import Progress
from rabbitmq_resilience.workload.wire_messages import TappedPublish, WireMessages
from rabbitmq_resilience.workload.work_lines import read_work
from rabbitmq_resilience.workload.worker import LoadNotBegunError

_POLL_S = 0.2


class RunningApplication(Closing):
    """The processes of an application, and the tap in front of its brokers.

    ``folder`` gets the record of the tap, and ``logs`` what the processes write. ``record`` gets their events. Other
    threads may read the progress.
    """

    def __init__(
        self,
        workload: ApplicationWorkload,
        cluster: Cluster,
        *,
        vhost: str,
        folder: Path,
        logs: Path,
        record: Callable[..., object],
    ) -> None:
        self.vhost = vhost
        self.workload = workload
        self.also_check: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._folder = folder
        self._logs = logs
        self._record = record
        self._epoch_us = epoch_us()
        self._own: list[ApplicationEvent] = []
        self._queues: ApplicationQueues | None = None
        self._known_us = self._asked_us = self._drained_us = 0
        self._stopped = False
        self._lock = threading.RLock()
        self._awaited: AwaitedMessages | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            guard = opened.enter_context(ProcessGuard())
            self.tap = opened.enter_context(Tap(folder, properties=workload.properties))
            self._messages = WireMessages(folder)
            self.instances = {
                name: ApplicationInstance(
                    name,
                    process,
                    self._environment(name),
                    logs / f"{name}.log",
                    record=self._say,
                    guard=guard,
                    run_image=partial(run_image, cluster, self.tap.ca_file),
                )
                for process in workload.processes
                for name in process.instances
            }
            opened.callback(end_all, self.instances)
            logs.mkdir(parents=True, exist_ok=True)
            for instance in self.instances.values():
                instance.start()
            self._opened = opened.pop_all()

    def _environment(self, name: str) -> Mapping[str, str]:
        """Return the variables of one process. It begins with another node than the one before it."""
        cluster, number = self._cluster, self.workload.instances.index(name)
        nodes = cluster.topology.client_nodes
        turned = [nodes[(number + i) % len(nodes)] for i in range(len(nodes))]
        endpoints = {}
        for node in turned:
            target = cluster.amqp_endpoint(node, client=f"{ROLE}:{name}")
            tls = bool(target.tls_name) or cluster.topology.client_tls
            port = self.tap.listen(name, node, target, ca=cluster.access.ca, made_certificate=tls)
            endpoints[node] = Endpoint(LOOPBACK, port, LOOPBACK if tls else "")
        access = replace(cluster.access, ca=str(self.tap.ca_file))
        return environment_of(self.workload.variables, access, self.vhost, endpoints)

    def _say(self, kind: str, **fields: Any) -> None:
        self._record(kind, **fields)
        self._own.append(ApplicationEvent(**fields))

    # What the runner asks of every load.

    @property
    def idle_connections(self) -> int:
        return 0

    def idle_missing(self) -> int:
        return 0

    def worker(self, name: str) -> ApplicationInstance:
        """Return a process by its name as a client (``application-worker-0``). Raise KeyError if there is none."""
        return self.instances[name.removeprefix(f"{ROLE}-")]

    def client_events(self, name: str) -> list[WorkerEvent]:
        """Return what happened to the connections of a process so far."""
        with self._lock:
            connections = followed(self._messages.events())
        found = [
            WorkerEvent(t_us=t_us, worker=name, event=what, node=connection.node)
            for connection in connections
            if connection.process == name.removeprefix(f"{ROLE}-")
            for t_us, what in connection.changes
        ]
        return sorted(found, key=lambda event: event.t_us)

    def progress(self) -> Progress:
        with self._lock:
            self._update()
            connected = sum(self.tap.state()["connections"].values()) if not self._stopped else 0
            return Progress(
                published=sum(self._messages.published.values()),
                confirmed=sum(self._messages.confirmed.values()),
                refused=self._messages.refused,
                unknown=0,
                received=sum(self._messages.delivered.values()),
                publishers_connected=connected,
                consumers_connected=connected,
                publishers_blocked=0,
            )

    # The wait for recovery is one for the brokers. Whether the processes come back is judged by an invariant.

    @property
    def early_consumers(self) -> Sequence[int]:
        return ()

    def confirmed_by_publisher(self) -> list[int]:
        return []

    def received_by_consumer(self) -> list[int]:
        return []

    def queues_of_consumer(self, index: int) -> list[str]:
        raise IndexError(index)

    def check(self) -> None:
        """Raise an error if the tap has ended, and what ``also_check`` raises. A process that ends is judged later."""
        self.also_check()
        if not self._stopped:
            self.tap.check()

    def await_flowing(self) -> None:
        """Wait until messages flow. Raise LoadNotBegunError, with what the programs wrote last, if they do not."""
        wanted = self.workload.flowing

        def flowing() -> bool:
            self.check()
            if ended := [e for e in self._own if e.event == "ended" and not self.instances[e.process].stated.restarted]:
                one = ended[0]
                how = f"{one.process} ended with status {one.status} before messages flowed"
                raise LoadNotBegunError(f"{how}; its last lines:\n{one.detail}")
            seen = self.progress()
            return seen.published >= wanted.published and seen.received >= wanted.delivered

        try:
            wait_until(flowing, timeout_s=wanted.within_s, what="the application's messages", poll_s=_POLL_S)
        except WaitTimeout as error:
            seen = self.progress()
            raise LoadNotBegunError(
                f"{seen.published:,} messages were published and {seen.received:,} delivered {wanted.within_s:g} s "
                f"after the application's start; {wanted.published:,} and {wanted.delivered:,} are demanded "
                "(workload.flowing); see what its processes wrote, under logs/"
            ) from error

    def know(self, queues: ApplicationQueues) -> None:
        """Take the queues that messages must arrive in from now on."""
        with self._lock:
            self._queues, self._known_us = queues, now_us()
            self._awaited = AwaitedMessages(self._messages, queues, self._is_owed)

    def begin_variation(self) -> int:
        return now_us()

    def stop_publishers(self, *, timeout_s: float) -> bool:
        """Ask the processes that stop before the drain to end, and wait for the last confirms. Return whether all ended
        by themselves."""
        return self._end("before_drain", at_least_s=timeout_s)

    def drain(self, depths: Depths, *, idle_s: float, timeout_s: float) -> DrainResult:
        """Wait until every message that must arrive has been delivered, or all queues are empty; then until no delivery
        waits for an acknowledgement. Both together take ``timeout_s`` at most, or a little longer."""
        begun_s = time.monotonic()
        moved_s, count, empty_s = begun_s, -1, None

        def drained() -> str:
            nonlocal moved_s, count, empty_s
            self.check()
            self._drained_us = now_us()
            missing = self._missing()
            if not missing:
                return "every message that must arrive was delivered"
            arrived = sum(self._messages.delivered.values())
            now_s = time.monotonic()
            if arrived != count:
                moved_s, count, empty_s = now_s, arrived, None
            if now_s - moved_s < idle_s:
                return ""
            try:
                held = any(any(depth) for depth in depths().values())
            except DepthsUnknown:
                return ""
            empty_s = None if held else (empty_s or now_s)
            return "" if empty_s is None or now_s - empty_s < idle_s else "all queues are empty"

        try:
            detail = wait_until(
                drained, timeout_s=timeout_s, what="the application to drain its queues", poll_s=_POLL_S
            )
            complete = True
        except WaitTimeout:
            detail, complete = f"messages were left in the queues after {timeout_s:g} s", False
        left_s = max(idle_s, begun_s + timeout_s - time.monotonic())
        with suppress(WaitTimeout):  # a program may need long for the messages that it has got
            wait_until(
                lambda: not self._unsettled(), timeout_s=left_s, what="the last acknowledgements", poll_s=_POLL_S
            )
        with self._lock:
            missing, owed = self._missing(), self._awaited.owed if self._awaited is not None else 0
        return DrainResult(complete, owed, owed - missing, missing, str(detail))

    def _missing(self) -> int:
        """Return how many messages that must arrive have not."""
        with self._lock:
            self._update()
            if self._awaited is None:
                return 0
            self._awaited.update()
            return self._awaited.missing

    def _unsettled(self) -> int:
        with self._lock:
            self._update()
            return self._messages.unsettled()

    def _is_owed(self, publish: TappedPublish) -> bool:
        if publish.expires or publish.sent_us < self._known_us:
            return False
        if publish.mode is Mode.PLAIN:
            return self.workload.unconfirmed == "judged" and not publish.returned
        return publish.outcome is Outcome.CONFIRMED

    def _update(self) -> None:
        if not self._stopped:
            self._messages.update()

    def stop(self) -> None:
        """End all processes, then the tap, and convert its record into the history."""
        if self._stopped:
            return
        self._asked_us = now_us()
        try:
            self._end("after_drain", at_least_s=0.0)
        finally:
            with self._lock:
                self._stopped = True
                self._opened.close()
        with self._lock:
            self._convert()

    def _end(self, when: str, *, at_least_s: float) -> bool:
        """Ask processes to end, and wait for them, each for as long as it may take."""
        mine = [instance for instance in self.instances.values() if instance.stated.stops == when]
        for instance in mine:
            instance.ask_to_end()
        ends = [instance.await_end(timeout_s=max(at_least_s, instance.stated.stop_within_s)) for instance in mine]
        return all(ends)

    def _convert(self) -> None:
        drained_us = self._drained_us or self._asked_us
        wire: Sequence[WireEvent] = self._messages.complete(asked_us=self._asked_us, drained_us=drained_us)
        api = self._cluster.api(self._cluster.topology.node_names[0])
        api.expect(self.vhost, **declared(wire))
        if self._queues is None:
            return  # nothing flowed, so there is nothing to judge
        application = Application(
            instances=tuple(self.instances),
            nodes=self._cluster.topology.node_names,
            queues=self._queues,
            known_us=self._known_us,
            drained_us=drained_us,
            judges_plain=self.workload.unconfirmed == "judged",
        )
        work = self._work(drained_us)
        history = ApplicationHistory(application, self._messages, wire, tuple(self._own))
        order = DeliveryOrder(self._messages, wire, self._queues, history.skipped)
        use = history.write(self._folder)
        for process, numbers in work.by_process().items():
            use["processes"][process]["work"] = numbers
        self._record("application_use", **use, order=order.by_queue)
        for fields in work.events():
            self._record("uncommitted", **fields)
        for fields in order.events():
            self._record("overtaken", **fields)
        for note in [*advised(use), *unjudged(history.declared_later)]:
            self._record("note", detail=note)

    def _work(self, drained_us: int) -> CommittedWork:
        written = {
            name: read_work(self._logs, name, range(instance.lives)) for name, instance in self.instances.items()
        }
        was_set = abs(epoch_us() - self._epoch_us) > EARLY_US
        origin_us = None if was_set else self._epoch_us
        return CommittedWork(self._messages, written, self.tap.hashes.named, drained_us=drained_us, epoch_us=origin_us)

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._opened.close()
