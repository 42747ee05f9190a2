"""Play a Job from start to end: show its output, fetch its records as files, and remove all that belongs to it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rabbitmq_resilience.extensions.attached.kubernetes.job_states import JobStatus
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.jobs import folder_archive
from rabbitmq_resilience.extensions.jobs.folder_archive import ParcelError
from rabbitmq_resilience.extensions.jobs.interrupts import Interrupts
from rabbitmq_resilience.extensions.jobs.manifests import STARTS_WITHIN_S
from rabbitmq_resilience.extensions.jobs.paths import ENDED, FETCHED, GRACE_S, KEEPER, PARCEL, RESULTS
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Exit statuses in addition to those of pytest: nothing was played (pytest's status too), and the records were lost.
NOT_PLAYED = 4
LOST = 20
_LOOK_EVERY_S = 2.0
#: After this time the reason is shown why no pod is made.
_POD_WITHIN_S = 20.0
_UNHEARD_S = 120.0
_NODE_REPORTS_WITHIN_S = 30.0
_GONE_WITHIN_S = GRACE_S + 60.0
_PACK = "exec python3 -m rabbitmq_resilience.extensions.jobs.entrypoint pack"


class Remote(Protocol):
    """What this module needs of ``extensions.attached.kubernetes.job.RemoteJob``. All methods raise MachineError."""

    def make(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]]) -> None: ...
    def look(self) -> JobStatus: ...
    def refusals(self) -> str: ...
    def player(self, pod: str) -> Machine: ...
    def keeper(self, pod: str) -> Machine: ...
    def output(self, pod: str, say: Callable[[str], None]) -> AbstractContextManager[Any]: ...
    def remove(self, *, within_s: float) -> None: ...


class LostError(Exception):
    """The Job did not end by itself; the text says why. ``status``: the exit status for the command."""

    def __init__(self, why: str, *, status: int = LOST) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Playing:
    """The play of one Job. ``say`` gets texts about the Job, ``show`` the lines that the Job prints."""

    remote: Remote
    interrupts: Interrupts
    say: Callable[[str], None]
    show: Callable[[str], None]
    _asked: bool = field(default=False, init=False)
    _ends_s: float | None = field(default=None, init=False)

    def play(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]], to: Path) -> int:
        """Play the Job, write its records to ``to``, and remove the Job in any case.

        Return pytest's own status, LOST, or NOT_PLAYED. What could not be removed is passed to ``say``."""
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
        assert ended.status is not None, "_ended() waits for it"
        how = f"status {ended.status}" + (f" ({ended.reason})" if ended.reason not in ("Completed", "Error") else "")
        self.say(f"pytest has ended, {how}; fetching the records")
        if not ended.kept:
            raise LostError(f"the records are lost: the container {KEEPER}, which kept them, has ended, too")
        try:
            files = self._fetched(pod, to)
        except ParcelError as error:
            raise LostError(f"the records are lost: {error}") from error
        self.say(f"fetched all {files} files, to {to}")
        return _own_status(to, ended.status, self.say)

    def _begun(self) -> str:
        """Return the name of the pod once pytest runs in it, or has run. Raise LostError if pytest does not start."""
        said: set[str] = set()

        def look() -> JobStatus:
            found = self._look()
            if found.waits and found.waits not in said and found.pod:
                said.add(found.waits)
                self.say(f"the Job waits for {found.waits}")
            return found

        def begun(found: JobStatus) -> bool:
            self.interrupts.end_if_asked()
            return bool(found.lost or found.plays or found.status is not None)

        def made(found: JobStatus) -> bool:
            return bool(found.pod) or begun(found)

        try:
            found = wait_until(look, timeout_s=_POD_WITHIN_S, what="a pod", poll_s=_LOOK_EVERY_S, until=made)
        except WaitTimeout:
            why = self.remote.refusals() or "Kubernetes gives no reason"
            raise LostError(f"no pod was made of the Job: {why}", status=NOT_PLAYED) from None
        if not begun(found):
            try:
                found = wait_until(look, timeout_s=STARTS_WITHIN_S, what="pytest", poll_s=_LOOK_EVERY_S, until=begun)
            except WaitTimeout as error:
                waits = error.last_seen.waits if isinstance(error.last_seen, JobStatus) else ""
                why = waits or self.remote.refusals() or "Kubernetes gives no reason"
                took = f"pytest did not start within {STARTS_WITHIN_S:.0f} s"
                raise LostError(f"{took}: {why}", status=NOT_PLAYED) from None
        if found.lost:
            raise LostError(found.lost, status=NOT_PLAYED)
        return str(found.pod)

    def _ended(self) -> JobStatus:
        """Return the state of the Job once pytest has ended. Raise LostError if the records are lost.

        The Job has a time limit of its own."""

        def ended(found: JobStatus) -> bool:
            if found.lost or self._is_late(found):
                raise LostError(f"{found.lost or found.ends}; its records are lost")
            if self.interrupts.asked and not self._asked and found.plays and found.pod:
                self._ask_to_end(found.pod)
            return found.status is not None

        limit_s = 30.0 * 24 * 3600
        return wait_until(
            self._look_closely, timeout_s=limit_s, what="pytest to end", poll_s=_LOOK_EVERY_S, until=ended
        )

    def _look_closely(self) -> JobStatus:
        """Return the state of the Job, with pytest's status even if the pod is being ended.

        The node of such a pod reports no status until all containers have ended. So the keeper is asked for the status
        that pytest wrote."""
        found = self._look()
        if not found.ends or found.status is not None or not found.kept or not found.pod:
            return found
        try:
            written = self.remote.keeper(found.pod).run('cat "$1" || true', f"{RESULTS}/{ENDED}")
        except MachineError:  # the pod may be gone already
            return found
        return replace(found, status=_written_status(written))

    def _is_late(self, found: JobStatus) -> bool:
        """Return whether a pod that is being ended should be gone by now: a node that is gone reports nothing."""
        if found.ends and self._ends_s is None:
            self._ends_s = time.monotonic() + GRACE_S + _NODE_REPORTS_WITHIN_S
            self.say(f"{found.ends}; pytest gets its time to heal")
        return self._ends_s is not None and time.monotonic() > self._ends_s

    def _ask_to_end(self, pod: str) -> None:
        try:
            self.remote.player(pod).run("kill -INT 1")
        except MachineError as error:
            self.say(f"pytest could not be asked to end yet: {error}")
            return
        self._asked = True
        self.say("asked pytest for an orderly end; another Ctrl-C does not wait for that")

    def _look(self) -> JobStatus:
        """Return the state of the Job; ask again for a while if the API server does not answer."""
        last: list[MachineError] = []

        def heard() -> JobStatus | None:
            try:
                return self.remote.look()
            except MachineError as error:
                if not last:
                    self.say(f"{error}; asking again")
                last.append(error)
                return None

        try:
            found = wait_until(heard, timeout_s=_UNHEARD_S, what="the API server", poll_s=_LOOK_EVERY_S)
        except WaitTimeout:
            raise LostError(f"the state of the Job cannot be read any more: {last[-1]}") from None
        assert found is not None, "wait_until() returns no None"
        return found

    def _fetched(self, pod: str, to: Path) -> int:
        """Fetch the records to the folder ``to``; return the number of files. Raise ParcelError if they are lost."""
        keeper = self.remote.keeper(pod)
        label = folder_archive.packed(keeper, _PACK)
        try:
            with tempfile.TemporaryDirectory(dir=to.parent, prefix=".parcel-") as folder:
                archive = Path(folder) / "parcel.tar.gz"
                folder_archive.fetch(keeper, label, at=PARCEL, to=archive, say=self.say)
                folder_archive.unpack(archive, label, to)
        except OSError as error:
            raise ParcelError(f"they cannot be written to {to}: {error.strerror or error}") from error
        with suppress(MachineError):  # the Job is removed next
            keeper.run('touch "$1"', FETCHED)
        return label.files

    def _remove(self) -> None:
        self.say("removing the Job and what belongs to it")
        try:
            self.remote.remove(within_s=_GONE_WITHIN_S)
            self.say("the Job is gone, and all that belonged to it")
        except MachineError as error:
            self.say(f"the Job may still exist; Kubernetes removes it some time after its end: {error}")
        except KeyboardInterrupt:
            self.say("the removal of the Job was requested, but not awaited")
            raise


def _own_status(to: Path, seen_status: int, say: Callable[[str], None]) -> int:
    """Return the status that pytest wrote into the records: a container may end with other statuses.

    Without it, return ``seen_status`` if a signal ended the container, else LOST."""
    try:
        status = _written_status((to / ENDED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        status = None
    if status is None:
        say("pytest did not reach its end: only the records up to that time were fetched")
        return seen_status if seen_status > 128 else LOST
    return status


def _written_status(text: str) -> int | None:
    """Return the status in the text that pytest wrote at its end, or None if there is none."""
    try:
        return int(json.loads(text)["status"])
    except (ValueError, KeyError, TypeError):
        return None
