"""Kill, stop and pause brokers in pods. Kubernetes starts a broker again as soon as it can: it cannot be kept down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rabbitmq_resilience.extensions.attached.foreign_broker import MachineProcess, RemoteBroker
from rabbitmq_resilience.extensions.attached.kubernetes.log import PodLog
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pod, Pods
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_LOOKED_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.3
_ENDED_WITHIN_S = 30.0
#: Kubernetes waits longer each time that a container ends, up to 5 minutes.
_BACK_WITHIN_S = 320.0
_GRACE_S_MAX = 120.0
#: The ports on which a broker and Erlang's port mapper listen.
_PORTS = (25672, 5672, 4369)


@dataclass
class PodBroker:
    """A broker that runs in a pod. ``inside`` observes from the broker's container. ``ephemeral`` acts from
    ``ephemeral_machine``, an ephemeral container of the same pod."""

    pods: Pods
    pod: str
    offer: Kubernetes
    inside: RemoteBroker
    ephemeral: RemoteBroker
    ephemeral_machine: Machine
    log: PodLog
    #: A machine in another pod, which sees whether a broker whose pod is deleted still listens.
    neighbour: Machine | None = None
    _paused: bool = field(default=False, init=False)

    def process(self) -> MachineProcess | None:
        """Return the broker's process, or None if its container does not run or has no broker.

        Repeat a failed look as long as the API server reports that the container runs, and raise MachineError if every
        look fails."""

        def looked() -> MachineProcess | MachineError | None:
            try:
                return self.inside.process()
            except MachineError as error:
                return error if self.pods.broker_runs(self.pod) else None

        try:
            found = wait_until(
                looked,
                timeout_s=_LOOKED_WITHIN_S,
                what=f"a look at the broker of {self.pod}",
                poll_s=_LOOK_EVERY_S,
                until=lambda seen: not isinstance(seen, MachineError),
            )
        except WaitTimeout as timeout:
            assert isinstance(timeout.last_seen, MachineError)
            raise timeout.last_seen from timeout
        assert not isinstance(found, MachineError)
        return found

    def state(self) -> ProcessState:
        """Return the state of the broker's process, as its container shows it."""
        found = self.process()
        if found is None:
            return "gone"
        return "suspended" if found.state in "Tt" else "running"

    def kill(self, *, for_s: float) -> None:  # noqa: ARG002 - Kubernetes decides when the broker is back
        """Kill the broker, or delete its pod without grace, as the offer says. Return once the broker has ended."""
        if self.offer.kill == "pod":
            self._delete(grace_s=0)
        else:
            self._signal("KILL", self._killable().pid)

    def stop(self, *, for_s: float) -> None:  # noqa: ARG002 - Kubernetes decides when the broker is back
        """Ask the broker to end, or delete its pod, as the offer says. Return once the broker has ended."""
        if self.offer.stop == "pod":
            self._delete(grace_s=None)
        else:
            self._signal("TERM", 1)

    def pause(self, *, for_s: float) -> None:
        """Suspend the broker; a watchdog in the pod resumes it after ``for_s`` seconds."""
        self._killable()
        self._paused = True
        self.ephemeral.pause(for_s=for_s)

    def give_back(self) -> None:
        """Resume a suspended broker, and return once the broker runs. Kubernetes starts one that has ended."""
        if self._paused or self.state() == "suspended":
            self.ephemeral.give_back()
            self._paused = False
        self._await(lambda: self.state() == "running", _BACK_WITHIN_S, f"Kubernetes to start {self.pod} again")

    def _delete(self, *, grace_s: int | None) -> None:
        """Delete the pod, and return once its broker has ended.

        Without a grace period the pod object vanishes at once, but the broker may go on. So another pod watches its
        ports. Raise MachineError if no other pod can."""
        before = self.pods.get(self.pod)
        if self.neighbour is not None and not self._answers(before.address):
            raise MachineError(
                f"no other pod reaches the broker of {self.pod}, so its end could not be seen; nothing was done"
            )
        self.log.pull()
        self.pods.delete(self.pod, uid=before.uid, grace_s=grace_s)
        grace = _grace_s(before) if grace_s is None else 0.0

        def gone() -> bool:
            found = self.pods.find(self.pod)
            return found is None or found.uid != before.uid

        self._await(gone, grace + _ENDED_WITHIN_S, f"pod {self.pod} to be gone")
        self._await(lambda: not self._answers(before.address), _ENDED_WITHIN_S, f"the broker of {self.pod} to end")

    def _answers(self, address: str) -> bool:
        """Return whether a port of the broker still accepts connections from another pod."""
        neighbour = self.neighbour
        return neighbour is not None and any(_listens(neighbour, address, port) for port in _PORTS)

    def _signal(self, signal: str, pid: int) -> None:
        """Send the signal, and return once the broker's process has ended."""
        before = self._running()
        self.log.pull()
        self.ephemeral_machine.run('kill -"$1" "$2"', signal, str(pid))

        def gone() -> bool:
            now = self.process()
            return now is None or now.name != before.name

        grace_s = 0.0 if signal == "KILL" else _grace_s(self.pods.get(self.pod))
        self._await(gone, grace_s + _ENDED_WITHIN_S, f"{before.name} of {self.pod} to end")

    def _killable(self) -> MachineProcess:
        """Return the broker's process. Raise MachineError if it is the first process of its container."""
        found = self._running()
        if found.pid == 1:
            raise MachineError(
                f"the broker of {self.pod} is the first process of its container, which no process in the pod can kill "
                "or suspend; state kill: pod, and play no pause"
            )
        return found

    def _running(self) -> MachineProcess:
        found = self.process()
        if found is None:
            raise MachineError(f"{self.pod} runs no broker now")
        return found

    @staticmethod
    def _await(true: Callable[[], bool], timeout_s: float, what: str) -> None:
        try:
            wait_until(true, timeout_s=timeout_s, what=what)
        except WaitTimeout as error:
            raise MachineError(str(error)) from error


def _grace_s(pod: Pod) -> float:
    """Return how long to wait for the end of the pod: its own grace period, which may be a week, but not more than
    ``_GRACE_S_MAX``."""
    return min(float(pod.raw.spec.termination_grace_period_seconds or 0), _GRACE_S_MAX)


def _listens(machine: Machine, address: str, port: int) -> bool:
    """Return whether the port accepts connections from the machine. Raise MachineError if the machine fails."""
    try:
        machine.connect(address, port, timeout_s=2.0).close()
    except OSError:
        return False
    return True
