"""The virtual hosts of runs on a cluster that is there already: made and removed again, or one that was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import UNAUTHORIZED
from typing import Any
from urllib.parse import quote

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.clusters.broker.versions import always_has
from rabbitmq_resilience.clusters.errors import ClusterError

#: Where the lock is while runs make their own virtual hosts.
LOCK_VHOST = "rabbitmq-resilience"


class GivenVhostApi(ManagementApi):
    """Makes and removes no virtual host, but empties the one that was given of what runs have left in it."""

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
        left = [row["name"] for row in self.queues(vhost, columns=("name",), timeout_s=timeout_s)]
        if others := sorted(name for name in left if not name.startswith("rabbitmq-resilience.")):
            raise ApiError(409, f"{self.base_url}/api/queues/{vhost}", f"the virtual host has queues: {others[:5]}")

    def delete_vhost(self, vhost: str, *, timeout_s: float = 30.0) -> None:
        """What was declared in it goes; the virtual host stays."""
        self._empty(vhost, "queues", "queues/{vhost}/{name}", timeout_s)
        self._empty(vhost, "exchanges", "exchanges/{vhost}/{name}", timeout_s)
        self._empty(vhost, "policies", "policies/{vhost}/{name}", timeout_s)

    def _empty(self, vhost: str, kind: str, path: str, timeout_s: float) -> None:
        part = quote(vhost, safe="")
        rows: list[dict[str, Any]] = self.get(f"{kind}/{part}", timeout_s=timeout_s)
        for row in rows:
            name = str(row["name"])
            if name and not name.startswith(("amq.", "rabbitmq-resilience.")):
                with suppress(ApiError):
                    self.delete(path.format(vhost=part, name=quote(name, safe="")), timeout_s=timeout_s)


def api_of(url: str, access: Access, *, given: str | None) -> ManagementApi:
    """The API of one node, which a run asks for its virtual host."""
    kind = ManagementApi if given is None else GivenVhostApi
    return kind(url, access=access)


@contextmanager
def lock_vhost(apis: Sequence[ManagementApi], *, given: str | None) -> Iterator[str]:
    """The virtual host of the lock: the one that was given, or one of its own, which goes again."""
    if given is not None:
        yield given
        return
    _on_any(apis, lambda api: api.create_vhost(LOCK_VHOST))
    try:
        yield LOCK_VHOST
    finally:
        with suppress(ClusterError):  # what is left holds nothing
            _on_any(apis, lambda api: api.delete_vhost(LOCK_VHOST))


def _on_any(apis: Sequence[ManagementApi], ask: Any) -> None:
    """Raises ClusterError where no node does it."""
    trouble = ""
    for api in apis:
        try:
            ask(api)
        except (ApiError, ApiUnreachable) as error:
            trouble = str(error)
        else:
            return
    raise ClusterError(trouble)
