"""Provide virtual hosts for runs on an existing cluster: make and remove them, or use one that was given.

A run removes only what it has made or declared itself. The virtual hosts that it makes carry a mark, so that they can
be found if the run was killed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import CONFLICT, NOT_FOUND, UNAUTHORIZED
from typing import Any, TypeVar
from urllib.parse import quote

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.broker.versions import always_has

#: A tag of the virtual hosts that runs make. Brokers before 3.8 keep no tags.
MARK = "rabbitmq-resilience"
#: The prefix of locks' names, both of queues and of connections.
LOCK = "rabbitmq-resilience.lock."

_Answer = TypeVar("_Answer")


@dataclass
class Made:
    """What a run has made, shared by the APIs of all its nodes.

    ``vhosts``: virtual hosts. ``declared``: names of what the run has declared in a given virtual host, by kind as in
    the API (``queues``).
    """

    vhosts: set[str] = field(default_factory=set)
    declared: dict[str, set[str]] = field(
        default_factory=lambda: {"queues": set(), "exchanges": set(), "policies": set()}
    )


class OwnVhostApi(ManagementApi):
    """An API that makes virtual hosts with our mark, and removes only those that this run has made."""

    def __init__(self, base_url: str, *, access: Access, made: Made) -> None:
        super().__init__(base_url, access=access)
        self._made = made

    def create_vhost(self, vhost: str, *, timeout_s: float = 15.0) -> None:
        """Make a virtual host. Raise ApiError if one of that name exists that this run has not made."""
        path = f"vhosts/{quote(vhost, safe='')}"
        if vhost not in self._made.vhosts:
            if self._has(path, timeout_s):
                raise ApiError(CONFLICT, f"{self.base_url}/api/{path}", "it exists, and this run has not made it")
            self._made.vhosts.add(vhost)
        text = "made by a run of rabbitmq-resilience; may be removed when no run is active"
        self.put(path, {"description": text, "tags": MARK}, timeout_s=timeout_s)
        self.set_permissions(vhost)

    def delete_vhost(self, vhost: str, *, timeout_s: float = 30.0) -> None:
        if vhost in self._made.vhosts:
            super().delete_vhost(vhost, timeout_s=timeout_s)
            self._made.vhosts.discard(vhost)

    def _has(self, path: str, timeout_s: float) -> bool:
        try:
            self.get(path, timeout_s=timeout_s)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True


class GivenVhostApi(ManagementApi):
    """An API that uses a given virtual host, and removes from it only what the run has declared there."""

    def __init__(self, base_url: str, *, access: Access, made: Made) -> None:
        super().__init__(base_url, access=access)
        self._declared = made.declared

    def has_feature(self, flag: str) -> bool:
        """Return whether the feature flag is enabled.

        If our user may not ask, the broker's version decides, if it always or never has the feature.
        """
        try:
            return super().has_feature(flag)
        except ApiError as error:
            known = always_has(self.version(), flag) if error.status == UNAUTHORIZED else None
            if known is None:
                raise
            return known

    def create_vhost(self, vhost: str, *, timeout_s: float = 15.0) -> None:
        """Check that the given virtual host is empty. Raise ApiError if it is not."""
        if texts := self.kept_in(vhost, timeout_s=timeout_s):
            raise ApiError(CONFLICT, f"{self.base_url}/api/vhosts/{vhost}", not_empty(vhost, texts))

    def delete_vhost(self, vhost: str, *, timeout_s: float = 30.0) -> None:
        """Delete what the run has declared in the virtual host, and nothing else."""
        for kind, names in self._declared.items():
            for name in sorted(names):
                try:
                    self.delete(f"{kind}/{quote(vhost, safe='')}/{quote(name, safe='')}", timeout_s=timeout_s)
                except ApiError as error:
                    if error.status != NOT_FOUND:
                        raise
                names.discard(name)

    def kept_in(self, vhost: str, *, timeout_s: float) -> list[str]:
        """Return, in words, what is in the virtual host; locks of runs and what every virtual host has are left out."""
        part = quote(vhost, safe="")
        found = {
            "queue": [name for name in self._names(f"queues/{part}", timeout_s) if not name.startswith(LOCK)],
            "exchange": [name for name in self._names(f"exchanges/{part}", timeout_s) if name and name[:4] != "amq."],
            "policy": self._names(f"policies/{part}", timeout_s),
            "binding": [
                f"{row['source']} to {row['destination']}"
                for row in self.get(f"bindings/{part}", timeout_s=timeout_s)
                if row["source"]  # every queue is bound to the default exchange
            ],
        }
        return [f"{kind} {name}" for kind, names in found.items() for name in sorted(names)]

    def connected_to(self, vhost: str) -> list[str]:
        """Return, in words, the connections to the virtual host, except those of runs that hold or want the lock."""
        rows = self.get(f"vhosts/{quote(vhost, safe='')}/connections")
        names = [str((row.get("client_properties") or {}).get("connection_name") or row["name"]) for row in rows]
        return [f"connection {name}" for name in sorted(names) if not name.startswith(LOCK)]

    def declare_queue(self, vhost: str, name: str, **how: Any) -> None:
        self._declared["queues"].add(name)
        super().declare_queue(vhost, name, **how)

    def expect(
        self,
        vhost: str,  # noqa: ARG002 - one virtual host is given
        *,
        queues: Collection[str] = (),
        exchanges: Collection[str] = (),
    ) -> None:
        self._declared["queues"].update(queues)
        self._declared["exchanges"].update(exchanges)

    def declare_exchange(self, vhost: str, name: str, **how: Any) -> None:
        self._declared["exchanges"].add(name)
        super().declare_exchange(vhost, name, **how)

    def set_policy(self, vhost: str, name: str, definition: Mapping[str, object], **how: Any) -> None:
        self._declared["policies"].add(name)
        super().set_policy(vhost, name, definition, **how)

    def import_definitions(self, definitions: Mapping[str, Any], *, timeout_s: float = 60.0) -> None:
        for kind, names in self._declared.items():
            names.update(str(row["name"]) for row in definitions.get(kind, ()))
        super().import_definitions(definitions, timeout_s=timeout_s)

    def _names(self, path: str, timeout_s: float) -> list[str]:
        return [str(row["name"]) for row in self.get(path, params={"columns": "name"}, timeout_s=timeout_s)]


def api_of(url: str, access: Access, made: Made, *, given: str | None) -> OwnVhostApi | GivenVhostApi:
    """Return the API of one node for a run that makes its virtual hosts, or that uses the given one."""
    kind = OwnVhostApi if given is None else GivenVhostApi
    return kind(url, access=access, made=made)


def not_empty(vhost: str, texts: Sequence[str]) -> str:
    return f"the virtual host {vhost} is not empty, and must be for these runs alone: it has {', '.join(texts[:5])}"


@contextmanager
def lock_vhost(apis: Sequence[ManagementApi], *, given: str | None) -> Iterator[str]:
    """Yield the virtual host of the lock: the given one, or a new one for this lock alone, which is removed again."""
    if given is not None:
        yield given
        return
    vhost = f"{LOCK}{uuid.uuid4().hex}"
    try:
        on_any(apis, lambda api: api.create_vhost(vhost))
        yield vhost
    finally:
        with suppress(ClusterError):  # it has our mark, and holds nothing
            on_any(apis, lambda api: api.delete_vhost(vhost))


def marked_vhosts(api: ManagementApi) -> list[str]:
    """Return the virtual hosts that any runs have made."""
    rows = api.get("vhosts", params={"columns": "name,tags"})
    return sorted(str(row["name"]) for row in rows if MARK in (row.get("tags") or ()))


def on_any(apis: Sequence[ManagementApi], ask: Any) -> Any:
    """Return what the first node answers that does as asked. Raise ClusterError if no node does."""
    trouble = ""
    for api in apis:
        try:
            return ask(api)
        except (ApiError, ApiUnreachable) as error:
            trouble = str(error)
    raise ClusterError(trouble)
