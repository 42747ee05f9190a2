"""A Job from its making to its end: its output as it comes, what it recorded fetched as files, nothing of it left."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rabbitmq_resilience.clusters.attached.kubernetes.job_states import Seen
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError
from rabbitmq_resilience.jobs import parcels
from rabbitmq_resilience.jobs.interrupts import Interrupts
from rabbitmq_resilience.jobs.manifests import STARTS_WITHIN_S
from rabbitmq_resilience.jobs.parcels import ParcelError
from rabbitmq_resilience.jobs.places import ENDED, FETCHED, GRACE_S, PARCEL, RESULTS
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Exit statuses beside those of pytest: nothing was played, as for pytest itself; and what was lost on the way.
NOT_PLAYED = 4
LOST = 20
_LOOK_EVERY_S = 2.0
#: Then it is said why no pod is made.
_POD_WITHIN_S = 20.0
_UNHEARD_S = 120.0
_NODE_TELLS_WITHIN_S = 30.0
_GONE_WITHIN_S = GRACE_S + 60.0
_PACK = "exec python3 -m rabbitmq_resilience.jobs.inside pack"


class Remote(Protocol):
    """What ``clusters.attached.kubernetes.job.RemoteJob`` is. All of it raises MachineError."""

    def make(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]]) -> None: ...
    def look(self) -> Seen: ...
    def refusals(self) -> str: ...
    def player(self, pod: str) -> Machine: ...
    def keeper(self, pod: str) -> Machine: ...
    def output(self, pod: str, say: Callable[[str], None]) -> AbstractContextManager[Any]: ...
    def remove(self, *, within_s: float) -> None: ...


class LostError(Exception):
    """The Job came to no end of its own; the text says why. ``status``: that of the command then."""

    def __init__(self, why: str, *, status: int = LOST) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Playing:
    """``say`` tells people of the Job, ``show`` what it prints."""

    remote: Remote
    interrupts: Interrupts
    say: Callable[[str], None]
    show: Callable[[str], None]
    _asked: bool = field(default=False, init=False)
    _ends_s: float | None = field(default=None, init=False)

    def play(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]], to: Path) -> int:
        """Returns pytest's own status, or LOST, or NOT_PLAYED. Whatever happens, nothing of the Job is left, or it is
        said what is."""
        try:
            self.remote.make(job, belongings)
            return self._played(to)
        except MachineError as error:
            self.say(str(error))
            return NOT_PLAYED
        except LostError as error:
            self.say(str(error))
            return error.status
        finally:
            self._remove()

    def _played(self, to: Path) -> int:
        pod = self._begun()
        with self.remote.output(pod, self.show):
            ended = self._ended()
        assert ended.status is not None, "it was waited for"
        told = f"status {ended.status}" + (f" ({ended.reason})" if ended.reason not in ("Completed", "Error") else "")
        self.say(f"pytest has ended, {told}; fetching what was recorded")
        if not ended.kept:
            raise LostError("what was recorded is lost: what kept it has ended, too")
        try:
            files = self._fetched(pod, to)
        except ParcelError as error:
            raise LostError(f"what was recorded is lost: {error}") from error
        self.say(f"{files} files came back whole, in {to}")
        return _own_status(to, ended.status, self.say)

    def _begun(self) -> str:
        """The pod, once pytest runs in it, or has run."""
        said: set[str] = set()

        def look() -> Seen:
            found = self._look()
            if found.waits and found.waits not in said and found.pod:
                said.add(found.waits)
                self.say(f"waits for {found.waits}")
            return found

        def begun(found: Seen) -> bool:
            self.interrupts.end_if_asked()
            return bool(found.lost or found.plays or found.status is not None)

        def made(found: Seen) -> bool:
            return bool(found.pod) or begun(found)

        try:
            found = wait_until(look, timeout_s=_POD_WITHIN_S, what="a pod", poll_s=_LOOK_EVERY_S, until=made)
        except WaitTimeout:
            why = self.remote.refusals() or "nobody says why"
            raise LostError(f"no pod was made of the Job: {why}", status=NOT_PLAYED) from None
        if not begun(found):
            try:
                found = wait_until(look, timeout_s=STARTS_WITHIN_S, what="pytest", poll_s=_LOOK_EVERY_S, until=begun)
            except WaitTimeout as error:
                waits = error.last_seen.waits if isinstance(error.last_seen, Seen) else ""
                why = waits or self.remote.refusals() or "nobody says why"
                raise LostError(f"it did not start within {STARTS_WITHIN_S:.0f} s: {why}", status=NOT_PLAYED) from None
        if found.lost:
            raise LostError(found.lost, status=NOT_PLAYED)
        return str(found.pod)

    def _ended(self) -> Seen:
        """Once pytest has ended. The Job has a time limit of its own."""

        def ended(found: Seen) -> bool:
            if found.lost or self._is_late(found):
                raise LostError(f"{found.lost or found.ends}; what it had recorded is lost with it")
            if self.interrupts.asked and not self._asked and found.plays and found.pod:
                self._ask_to_end(found.pod)
            return found.status is not None

        limit_s = 30.0 * 24 * 3600
        return wait_until(
            self._look_closely, timeout_s=limit_s, what="pytest to end", poll_s=_LOOK_EVERY_S, until=ended
        )

    def _look_closely(self) -> Seen:
        """Of a pod that is being ended its node says nothing more until all its containers have ended; what pytest
        wrote down at its end is asked for then."""
        found = self._look()
        if not found.ends or found.status is not None or not found.kept or not found.pod:
            return found
        try:
            written = self.remote.keeper(found.pod).run('cat "$1" || true', f"{RESULTS}/{ENDED}")
        except MachineError:  # it may be gone already
            return found
        return replace(found, status=_written_status(written))

    def _is_late(self, found: Seen) -> bool:
        """Whether a pod that is being ended ought to be gone: nobody tells of a node that is."""
        if found.ends and self._ends_s is None:
            self._ends_s = time.monotonic() + GRACE_S + _NODE_TELLS_WITHIN_S
            self.say(f"{found.ends}; pytest is given its time to heal")
        return self._ends_s is not None and time.monotonic() > self._ends_s

    def _ask_to_end(self, pod: str) -> None:
        try:
            self.remote.player(pod).run("kill -INT 1")
        except MachineError as error:
            self.say(f"pytest is not asked to end yet: {error}")
            return
        self._asked = True
        self.say("has asked pytest to end in order; another Ctrl-C does not wait for that")

    def _look(self) -> Seen:
        """An API server that does not answer is asked again for a while."""
        last: list[MachineError] = []

        def heard() -> Seen | None:
            try:
                return self.remote.look()
            except MachineError as error:
                if not last:
                    self.say(f"{error}; asks again")
                last.append(error)
                return None

        try:
            found = wait_until(heard, timeout_s=_UNHEARD_S, what="the API server", poll_s=_LOOK_EVERY_S)
        except WaitTimeout:
            raise LostError(f"nobody tells of the Job any more: {last[-1]}") from None
        assert found is not None, "it was waited for"
        return found

    def _fetched(self, pod: str, to: Path) -> int:
        """How many files came. Raises ParcelError."""
        keeper = self.remote.keeper(pod)
        label = parcels.packed(keeper, _PACK)
        try:
            with tempfile.TemporaryDirectory(dir=to.parent, prefix=".parcel-") as folder:
                archive = Path(folder) / "parcel.tar.gz"
                parcels.fetch(keeper, label, at=PARCEL, to=archive, told=self.say)
                parcels.unpack(archive, label, to)
        except OSError as error:
            raise ParcelError(f"it cannot be written to {to}: {error.strerror or error}") from error
        with suppress(MachineError):  # it is removed next
            keeper.run('touch "$1"', FETCHED)
        return label.files

    def _remove(self) -> None:
        self.say("removes what it made there")
        try:
            self.remote.remove(within_s=_GONE_WITHIN_S)
            self.say("all of it is gone")
        except MachineError as error:
            self.say(f"it may be left, and removes itself some time after its end: {error}")
        except KeyboardInterrupt:
            self.say("its end was asked for, and not waited for")
            raise


def _own_status(to: Path, seen_status: int, say: Callable[[str], None]) -> int:
    """What pytest said of itself; a container may end with any status, and without pytest."""
    try:
        status = _written_status((to / ENDED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        status = None
    if status is None:
        say("pytest did not come to its end: what it had recorded until then is there, and not more")
        return seen_status if seen_status > 128 else LOST
    return status


def _written_status(text: str) -> int | None:
    """What pytest wrote down at its end, None where it did not come to that."""
    try:
        return int(json.loads(text)["status"])
    except (ValueError, KeyError, TypeError):
        return None
