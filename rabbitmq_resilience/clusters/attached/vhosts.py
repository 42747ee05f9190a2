"""The virtual hosts of runs on a cluster that is there already: made and removed again, or one that was given.

Nothing is removed but what the run itself has made or declared. What it makes carries a mark, by which it is known
where the run was killed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import CONFLICT, NOT_FOUND, UNAUTHORIZED
from typing import Any, TypeVar
from urllib.parse import quote

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.clusters.broker.versions import always_has
from rabbitmq_resilience.clusters.errors import ClusterError

#: A tag of the virtual hosts that runs make. Brokers before 3.8 keep no tags.
MARK = "rabbitmq-resilience"
#: Names of locks begin so, both of queues and of connections.
LOCK = "rabbitmq-resilience.lock."

_Answer = TypeVar("_Answer")


@dataclass
class Made:
    """What a run has made, known to the APIs of all its nodes: virtual hosts, and what is declared in one that was
    given, by kind as the API has it (``queues``)."""

    vhosts: set[str] = field(default_factory=set)
    declared: dict[str, set[str]] = field(
        default_factory=lambda: {"queues": set(), "exchanges": set(), "policies": set()}
    )


class OwnVhostApi(ManagementApi):
    """Makes virtual hosts with our mark, and removes none that others have made."""

    def __init__(self, base_url: str, *, access: Access, made: Made) -> None:
        super().__init__(base_url, access=access)
        self._made = made

    def create_vhost(self, vhost: str, *, timeout_s: float = 15.0) -> None:
        """Raises ApiError where one of that name is there that this run has not made."""
        path = f"vhosts/{quote(vhost, safe='')}"
        if vhost not in self._made.vhosts:
            if self._has(path, timeout_s):
                raise ApiError(CONFLICT, f"{self.base_url}/api/{path}", "it is there already, and not of this run")
            self._made.vhosts.add(vhost)
        told = "made by a run, and to be removed where no run is at work"
        self.put(path, {"description": told, "tags": MARK}, timeout_s=timeout_s)
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
    """Makes and removes no virtual host, but what the run has declared in the one that was given."""

    def __init__(self, base_url: str, *, access: Access, made: Made) -> None:
        super().__init__(base_url, access=access)
        self._declared = made.declared

    def has_feature(self, flag: str) -> bool:
        """Where the user may not ask, versions that have no flags of that name, or cannot do without, tell as well."""
        try:
            return super().has_feature(flag)
        except ApiError as error:
            told = always_has(self.version(), flag) if error.status == UNAUTHORIZED else None
            if told is None:
                raise
            return told

    def create_vhost(self, vhost: str, *, timeout_s: float = 15.0) -> None:
        """It is there, and must be empty."""
        if texts := self.kept_in(vhost, timeout_s=timeout_s):
            raise ApiError(CONFLICT, f"{self.base_url}/api/vhosts/{vhost}", not_empty(vhost, texts))

    def delete_vhost(self, vhost: str, *, timeout_s: float = 30.0) -> None:
        """What the run has declared in it goes; the virtual host stays, and what others have declared."""
        for kind, names in self._declared.items():
            for name in sorted(names):
                try:
                    self.delete(f"{kind}/{quote(vhost, safe='')}/{quote(name, safe='')}", timeout_s=timeout_s)
                except ApiError as error:
                    if error.status != NOT_FOUND:
                        raise
                names.discard(name)

    def kept_in(self, vhost: str, *, timeout_s: float) -> list[str]:
        """In words, what the virtual host has that no run has declared."""
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
        """In words, who is connected to the virtual host, but for runs that hold or want the lock."""
        rows = self.get(f"vhosts/{quote(vhost, safe='')}/connections")
        names = [str((row.get("client_properties") or {}).get("connection_name") or row["name"]) for row in rows]
        return [f"connection {name}" for name in sorted(names) if not name.startswith(LOCK)]

    def declare_queue(self, vhost: str, name: str, **how: Any) -> None:
        self._declared["queues"].add(name)
        super().declare_queue(vhost, name, **how)

    def expect_queues(self, vhost: str, names: Collection[str]) -> None:  # noqa: ARG002 - there is one
        self._declared["queues"].update(names)

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
    """The API of one node, which a run asks for its virtual host."""
    kind = OwnVhostApi if given is None else GivenVhostApi
    return kind(url, access=access, made=made)


def not_empty(vhost: str, texts: Sequence[str]) -> str:
    return f"the virtual host {vhost} is not empty, and must be for these runs alone: it has {', '.join(texts[:5])}"


@contextmanager
def lock_vhost(apis: Sequence[ManagementApi], *, given: str | None) -> Iterator[str]:
    """The virtual host of the lock: the one that was given, or one for this lock alone, which goes again."""
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
    """Those that runs have made, of whomever."""
    rows = api.get("vhosts", params={"columns": "name,tags"})
    return sorted(str(row["name"]) for row in rows if MARK in (row.get("tags") or ()))


def on_any(apis: Sequence[ManagementApi], ask: Any) -> Any:
    """What the first node answers that answers at all. Raises ClusterError where no node does it."""
    trouble = ""
    for api in apis:
        try:
            return ask(api)
        except (ApiError, ApiUnreachable) as error:
            trouble = str(error)
    raise ClusterError(trouble)
