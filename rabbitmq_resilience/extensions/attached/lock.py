"""Lock a cluster for one run: each run has a lock queue there, and no lock queue of another run may exist.

The queue is exclusive: it belongs to a connection and ends with it, so a run that is killed leaves no lock. If the
connection's node goes away, the run takes its lock again at another node. The queue lies in a virtual host that no
other run shares, or in the given one. Locks of other runs are looked for in all virtual hosts.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import NOT_FOUND
from urllib.parse import quote

from pika import BlockingConnection, ConnectionParameters
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker, ProbableAccessDeniedError

from rabbitmq_resilience.extensions.attached.vhosts import LOCK, lock_vhost, on_any
from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.management import ApiError, ManagementApi
from rabbitmq_resilience.tools.closing import Closing

_TURN_S = 0.5
_TAKEN_WITHIN_S = 15.0
_HEARTBEAT_S = 10
_LISTED_WITHIN_S = 15.0

#: AMQP 0-9-1, 1.1: access refused, and not allowed, which brokers answer if a virtual host is gone.
_REFUSED = (403, 530)


class LockedError(ClusterError):
    """Another run has the cluster, or this run has lost it."""


@contextmanager
def locked(
    access: Access, endpoints: Sequence[Endpoint], apis: Sequence[ManagementApi], *, given: str | None
) -> Iterator[ClusterLock]:
    """Hold the lock of the cluster. ``given``: the virtual host that the cluster file states.

    Raise LockedError if another run has the cluster; then nothing is made there. Raise ClusterError if no node lets the
    lock be taken.
    """
    refuse_held(apis)
    with lock_vhost(apis, given=given) as vhost, ClusterLock(access, endpoints, apis, vhost=vhost) as lock:
        yield lock


def refuse_held(apis: Sequence[ManagementApi], *, ours: str | None = None) -> None:
    """Raise LockedError if another run has a lock in any virtual host, and ClusterError if no node answers.

    ``ours``: how the names of our own locks begin.
    """
    found = on_any(apis, _locks)
    if others := {name: vhost for name, vhost in found.items() if ours is None or not name.startswith(ours)}:
        where = ", ".join(f"{name} in the virtual host {vhost}" for name, vhost in sorted(others.items()))
        raise LockedError(f"another run has this cluster: its lock is {where}")


def _locks(api: ManagementApi) -> dict[str, str]:
    """Return the virtual host of each lock, by the name of the lock.

    Our user sees queues only in virtual hosts that it may use, but connections of all. Brokers may list connections
    seconds late, list ended ones, or list none if statistics are off. So connections count only where our user cannot
    see queues.
    """
    how = {"disable_stats": "true", "enable_queue_totals": "true", "columns": "name,vhost"}
    rows = api.get("queues", params=how, timeout_s=_LISTED_WITHIN_S)
    with suppress(ApiError):
        columns = {"columns": "user_provided_name,vhost"}
        connections = [
            {"name": row.get("user_provided_name", ""), "vhost": row.get("vhost")}
            for row in api.get("connections", params=columns, timeout_s=_LISTED_WITHIN_S)
        ]
        rows += [
            row for row in connections if str(row["name"]).startswith(LOCK) and not lists_queues(api, str(row["vhost"]))
        ]
    return {str(row["name"]): str(row["vhost"]) for row in rows if str(row["name"]).startswith(LOCK)}


def lists_queues(api: ManagementApi, vhost: str) -> bool:
    """Return whether our user may list the queues of the virtual host; True also if the virtual host is gone."""
    how = {"disable_stats": "true", "columns": "name"}
    try:
        api.get(f"queues/{quote(vhost, safe='')}", params=how, timeout_s=_LISTED_WITHIN_S)
    except ApiError as error:
        return error.status == NOT_FOUND
    return True


class ClusterLock(Closing):
    """A lock that is held from now until ``close`` (or leaving the context).

    Raise LockedError if another run has the cluster, and ClusterError if no node lets the lock be taken.
    """

    def __init__(
        self, access: Access, endpoints: Sequence[Endpoint], apis: Sequence[ManagementApi], *, vhost: str
    ) -> None:
        self.vhost = vhost
        self._access = access
        self._endpoints = list(endpoints)
        self._apis = list(apis)
        self._ours = f"{LOCK}{uuid.uuid4().hex}"
        self._tries = 0
        self._taken = 0
        self._closed = threading.Event()
        self._settled = threading.Event()
        self._lost = ""
        self._trouble = ""
        self._thread = threading.Thread(target=self._hold, name="cluster-lock", daemon=True)
        self._thread.start()
        self._settled.wait(_TAKEN_WITHIN_S)
        if self._lost or not self._taken:
            self.close()
            raise (
                LockedError(self._lost)
                if self._lost
                else ClusterError(
                    f"the lock of the cluster could not be taken in the virtual host {vhost}: {self._trouble}"
                )
            )

    def check(self) -> None:
        """Raise LockedError if the lock is lost: another run has one, or no node that answers lets it be taken again.

        While no node answers, the lock stays ours, as no other run can take one then either.
        """
        if self._lost:
            raise LockedError(self._lost)

    def look(self) -> None:
        """Check as ``check`` does, and look for locks of other runs now. Raise ClusterError if no node answers."""
        self.check()
        refuse_held(self._apis, ours=self._ours)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _hold(self) -> None:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # nodes that are killed are no news
        count = len(self._endpoints)
        #: Whether each attempt since the lock was last held was refused.
        refused: list[bool] = []
        while not self._closed.is_set() and not self._lost:
            endpoint = self._endpoints[self._tries % count]
            self._tries += 1
            before = self._taken
            refused.append(self._refuses(endpoint))
            if self._taken > before:
                refused.clear()
            elif len(refused) >= count and any(refused[-count:]):
                self._give_up()
            self._closed.wait(_TURN_S)

    def _give_up(self) -> None:
        if self._taken:
            self._lost = f"the lock of this run is gone, and no node lets it be taken again: {self._trouble}"
        self._settled.set()

    def _refuses(self, endpoint: Endpoint) -> bool:
        """Try to hold the lock at that node; return whether the node refuses it.

        A node refuses the lock if its virtual host is gone or our user may not use it. A node that is away refuses
        nothing.
        """
        try:
            self._hold_at(endpoint)
        except LockedError as error:
            self._lost = str(error)
            self._settled.set()
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as error:
            self._trouble = f"{endpoint.host}:{endpoint.port}: {error.reply_text}"
            return error.reply_code in _REFUSED
        except ProbableAccessDeniedError as error:  # pika passes on the broker's answer only as this text
            self._trouble = f"{endpoint.host}:{endpoint.port}: {error}"
            return any(f"({code})" in str(error) for code in _REFUSED)
        except (AMQPError, OSError) as error:
            self._trouble = f"{endpoint.host}:{endpoint.port}: {type(error).__name__} {error}".strip()
        return False

    def _hold_at(self, endpoint: Endpoint) -> None:
        """Hold the lock at that node, and return when it is let go. Raise LockedError if another run has a lock."""
        parameters = ConnectionParameters(
            **self._access.parameters(endpoint),
            virtual_host=self.vhost,
            heartbeat=_HEARTBEAT_S,
            socket_timeout=2,
            stack_timeout=5,
            blocked_connection_timeout=None,
            client_properties={"connection_name": f"{self._ours} of {our_name()}"},
        )
        connection = BlockingConnection(parameters)
        try:
            # Never the same name again: a broker may keep a dead connection, and its queue, for a while.
            connection.channel().queue_declare(f"{self._ours}.{self._tries}", exclusive=True)
            looked = False
            while not self._closed.is_set():
                looked = looked or self._looked()
                connection.process_data_events(time_limit=_TURN_S)
        finally:
            with suppress(AMQPError, OSError):
                if connection.is_open:
                    connection.close()

    def _looked(self) -> bool:
        """Return whether a node has confirmed that no other run has a lock; False if no node answers."""
        try:
            refuse_held(self._apis, ours=self._ours)
        except LockedError:
            raise
        except ClusterError as error:
            self._trouble = str(error)
            return False
        self._taken += 1
        self._settled.set()
        return True


def our_name() -> str:
    """Return a name of this process for people. In a container its user often has a number and no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"
