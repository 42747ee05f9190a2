"""Brokers in pods. Kubernetes starts them again by itself, as soon as it can: nobody holds one down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rabbitmq_resilience.clusters.attached.broker import Process, RemoteBroker
from rabbitmq_resilience.clusters.attached.kubernetes.log import PodLog
from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pod, Pods
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError
from rabbitmq_resilience.clusters.attached.offers import Kubernetes
from rabbitmq_resilience.clusters.protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_LOOKED_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.3
_ENDED_WITHIN_S = 30.0
#: A container that ended often is started later and later: after 5 minutes at most.
_BACK_WITHIN_S = 320.0
_GRACE_S_MAX = 120.0
#: Where a broker listens, and Erlang's port mapper beside it.
_PORTS = (25672, 5672, 4369)


@dataclass
class PodBroker:
    """``inside`` looks from the broker's container; ``beside`` acts, and ``beside_machine`` is where."""

    pods: Pods
    pod: str
    offer: Kubernetes
    inside: RemoteBroker
    beside: RemoteBroker
    beside_machine: Machine
    log: PodLog
    #: Another pod, which sees whether a broker whose pod is deleted still listens.
    neighbour: Machine | None = None
    _paused: bool = field(default=False, init=False)

    def process(self) -> Process | None:
        """None where its container does not run, or has no broker. While the API server does not know yet that one
        does, it is asked again."""

        def looked() -> Process | MachineError | None:
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
        found = self.process()
        if found is None:
            return "gone"
        return "suspended" if found.state in "Tt" else "running"

    def kill(self, *, for_s: float) -> None:  # noqa: ARG002 - Kubernetes decides when it is back
        if self.offer.kill == "pod":
            self._delete(grace_s=0)
        else:
            self._signal("KILL", self._killable().pid)

    def stop(self, *, for_s: float) -> None:  # noqa: ARG002 - Kubernetes decides when it is back
        if self.offer.stop == "pod":
            self._delete(grace_s=None)
        else:
            self._signal("TERM", 1)

    def pause(self, *, for_s: float) -> None:
        self._killable()
        self._paused = True
        self.beside.pause(for_s=for_s)

    def give_back(self) -> None:
        if self._paused or self.state() == "suspended":
            self.beside.give_back()
            self._paused = False
        self._await(lambda: self.state() == "running", _BACK_WITHIN_S, f"Kubernetes to start {self.pod} again")

    def _delete(self, *, grace_s: int | None) -> None:
        """A deleted pod is out of the API server's sight at once where it has no grace, and its broker may live on."""
        before = self.pods.there(self.pod)
        if self.neighbour is not None and not self._answers(before.address):
            raise MachineError(f"no other pod sees the broker of {self.pod}, nor would its end; nothing was done")
        self.log.pull()
        self.pods.delete(self.pod, uid=before.uid, grace_s=grace_s)
        grace = _grace_s(before) if grace_s is None else 0.0

        def gone() -> bool:
            found = self.pods.find(self.pod)
            return found is None or found.uid != before.uid

        self._await(gone, grace + _ENDED_WITHIN_S, f"pod {self.pod} to be gone")
        self._await(lambda: not self._answers(before.address), _ENDED_WITHIN_S, f"the broker of {self.pod} to end")

    def _answers(self, address: str) -> bool:
        """Whether something still listens there, as another pod sees it."""
        neighbour = self.neighbour
        return neighbour is not None and any(_listens(neighbour, address, port) for port in _PORTS)

    def _signal(self, signal: str, pid: int) -> None:
        """Returns once the process that was there is not any more."""
        before = self._there()
        self.log.pull()
        self.beside_machine.run('kill -"$1" "$2"', signal, str(pid))

        def gone() -> bool:
            now = self.process()
            return now is None or now.name != before.name

        grace_s = 0.0 if signal == "KILL" else _grace_s(self.pods.there(self.pod))
        self._await(gone, grace_s + _ENDED_WITHIN_S, f"{before.name} of {self.pod} to end")

    def _killable(self) -> Process:
        found = self._there()
        if found.pid == 1:
            raise MachineError(
                f"the broker of {self.pod} is the first process of its container, which none beside it can kill or "
                "suspend; state kill: pod, and play no pause"
            )
        return found

    def _there(self) -> Process:
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
    """How long its end is waited for: what operators give it may be a week."""
    return min(float(pod.raw.spec.termination_grace_period_seconds or 0), _GRACE_S_MAX)


def _listens(machine: Machine, address: str, port: int) -> bool:
    """Raises MachineError where nobody could look."""
    try:
        machine.connect(address, port, timeout_s=2.0).close()
    except OSError:
        return False
    return True
