"""The broker's management HTTP API, with time-outs short enough to ask a cluster that is being broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.tools.closing import Closing

Json = dict[str, Any]

#: What a queue's listing costs grows with its columns; these answer who leads, who follows, how much is in it.
QUEUE_COLUMNS = (
    "name,type,node,state,leader,members,online,slave_nodes,synchronised_slave_nodes,"
    "messages,messages_ready,messages_unacknowledged"
)
NODE_COLUMNS = "name,type,running,partitions,mem_used,mem_limit,mem_alarm,disk_free_limit,disk_free_alarm"

#: A node, and the resource of an alarm that it has: ``("rabbit@host1", "memory")``.
Alarm = tuple[str, str]
#: By the resource of an alarm, the column of its node that tells whether it is raised.
ALARMS = {"memory": "mem_alarm", "disk": "disk_free_alarm"}
#: What health checks call a resource otherwise (rabbit_alarm), and alarms of theirs that block no publisher.
_RESOURCES, _BLOCKING_NOBODY = {"disk space": "disk"}, frozenset({"file descriptors"})

#: Health checks of whether a node can be spared.
QUORUM_CRITICAL, MIRROR_CRITICAL = "node-is-quorum-critical", "node-is-mirror-sync-critical"


class ApiError(Exception):
    """The broker answered, and refused. ``status`` is the HTTP status, ``text`` what it said."""

    def __init__(self, status: int, url: str, text: str) -> None:
        super().__init__(f"{url} answered {status}: {text[:500]}")
        self.status = status
        self.url = url
        self.text = text


class ApiUnreachable(Exception):
    """Nobody answered in time: the node is down, paused, cut off, or still booting."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} is not reachable: {reason}")
        self.url = url


class ManagementApi(Closing):
    """The HTTP API of one node. Every call raises ``ApiError`` or ``ApiUnreachable``, and nothing else.

    ``timeout_s`` bounds each read: while a peer is cut off for less than ``net_ticktime``, some
    answers come late or never.
    """

    def __init__(self, base_url: str, *, access: Access = Access(), timeout_s: float = 2.0) -> None:  # noqa: B008 - it is frozen
        self.base_url = base_url.rstrip("/")
        self._user = access.user
        self._client = httpx.Client(
            auth=(access.user, access.password),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 1.0)),
            trust_env=False,
            verify=access.tls() if base_url.startswith("https:") else False,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object | None = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        told: str | None = None,
    ) -> Any:
        """Send one request to ``/api/<path>``; the decoded JSON answer, None where there is no content. ``told``: what
        errors call the path, where people are not to read all of it."""
        to, url = (f"{self.base_url}/api/{each}" for each in (path, path if told is None else told))
        extra: Json = {} if timeout_s is None else {"timeout": timeout_s}
        try:
            response = self._client.request(method, to, json=body, params=params, **extra)
        except (httpx.HTTPError, OSError) as error:
            raise ApiUnreachable(url, f"{type(error).__name__} {error}".strip()) from error
        if response.status_code >= 400:
            raise ApiError(response.status_code, url, response.text)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise ApiError(response.status_code, url, f"no JSON: {response.text[:200]}") from error

    def get(self, path: str, *, params: Mapping[str, str] | None = None, timeout_s: float | None = None) -> Any:
        return self.request("GET", path, params=params, timeout_s=timeout_s)

    def put(self, path: str, body: object, *, timeout_s: float | None = None) -> Any:
        return self.request("PUT", path, body=body, timeout_s=timeout_s)

    def post(self, path: str, body: object, *, timeout_s: float | None = None) -> Any:
        return self.request("POST", path, body=body, timeout_s=timeout_s)

    def delete(self, path: str, *, timeout_s: float | None = None) -> Any:
        return self.request("DELETE", path, timeout_s=timeout_s)

    def overview(self) -> Json:
        answer: Json = self.get("overview", params={"disable_stats": "true", "enable_queue_totals": "true"})
        return answer

    def version(self) -> str:
        return str(self.overview()["rabbitmq_version"])

    def has_feature(self, flag: str) -> bool:
        """Whether the feature flag of that name is enabled; False also where the broker does not know it."""
        flags = self.get("feature-flags")
        return any(each["name"] == flag and each["state"] == "enabled" for each in flags)

    def enable_feature_flag(self, flag: str, *, timeout_s: float = 120.0) -> None:
        """Enable a feature flag on all nodes; returns when it is, also where it was before. Raises ApiError where the
        broker does not know the flag or cannot enable it, and ApiUnreachable."""
        self.put(f"feature-flags/{_part(flag)}/enable", {"name": flag}, timeout_s=timeout_s)

    def nodes(self) -> list[Json]:
        """One mapping a cluster member: ``name``, ``type`` (disc, ram), ``running``, ``mem_used``, ..."""
        answer: list[Json] = self.get("nodes", params={"columns": NODE_COLUMNS})
        return answer

    def silent_nodes(self, *, timeout_s: float | None = None) -> list[str]:
        """The Erlang names of members that run and whose statistics tell nothing, as where they have ended (3.10.8), or
        not yet. Nobody tells of their connections and of the states of their queues."""
        rows = self.get("nodes", params={"columns": "name,running,mem_used"}, timeout_s=timeout_s)
        return sorted(str(row["name"]) for row in rows if row.get("running") and "mem_used" not in row)

    def running_nodes(self) -> frozenset[str]:
        """The Erlang names of the members that this node sees running."""
        return frozenset(str(node["name"]) for node in self.nodes() if node.get("running"))

    def is_critical(self, check: str) -> bool:
        """Whether a health check of this node (``QUORUM_CRITICAL``) says that something would be lost without it. False
        where the version knows nothing of mirrors any more. Raises ``ApiError`` where it has no such check yet."""
        try:
            self.get(f"health/checks/{check}", timeout_s=5.0)
        except ApiError as error:
            if error.status == 404 and check == MIRROR_CRITICAL:
                return False
            if error.status == 503:
                return True
            raise
        return False

    def alarms(self, *, timeout_s: float | None = None) -> set[Alarm]:
        """Those of memory and disk that are raised anywhere in the cluster, as this node knows it. A node is asked for
        its alarms and not for its statistics, which end for good where they have failed too often (3.10.8); only one
        without that health check tells them by its statistics. Raises ``ApiError`` where those tell of no node."""
        try:
            self.get("health/checks/alarms", timeout_s=timeout_s)
        except ApiError as error:
            if error.status == 503:
                return _listed(error)
            if error.status != 404:
                raise
            rows = self.get("nodes", params={"columns": ",".join(("name", *ALARMS.values()))}, timeout_s=timeout_s)
            told = {(str(row["name"]), what): row[key] for row in rows for what, key in ALARMS.items() if key in row}
            if not told:
                raise
            return {alarm for alarm, is_raised in told.items() if is_raised}
        return set()

    def rebalance_queues(self) -> None:
        """Let leaders be spread evenly over the nodes; returns before it is done."""
        self.post("rebalance/queues", {})

    def vhosts(self) -> list[str]:
        return [str(vhost["name"]) for vhost in self.get("vhosts", params={"columns": "name"})]

    def create_vhost(self, vhost: str, *, timeout_s: float = 15.0) -> None:
        """Create a virtual host and let the user who asks do everything in it."""
        self.put(f"vhosts/{_part(vhost)}", {}, timeout_s=timeout_s)
        self.set_permissions(vhost)

    def delete_vhost(self, vhost: str, *, timeout_s: float = 30.0) -> None:
        """Delete a virtual host with all that is in it; it is no error if there is none."""
        _forgive_missing(lambda: self.delete(f"vhosts/{_part(vhost)}", timeout_s=timeout_s))

    def set_permissions(self, vhost: str) -> None:
        allow_all = {"configure": ".*", "write": ".*", "read": ".*"}
        part = _part(vhost)
        self.request("PUT", f"permissions/{part}/{_part(self._user)}", body=allow_all, told=f"permissions/{part}/USER")

    def set_policy(
        self,
        vhost: str,
        name: str,
        definition: Mapping[str, object],
        *,
        pattern: str = ".*",
        apply_to: str = "queues",
        priority: int = 0,
        timeout_s: float = 10.0,
    ) -> None:
        body = {"pattern": pattern, "definition": dict(definition), "apply-to": apply_to, "priority": priority}
        self.put(f"policies/{_part(vhost)}/{_part(name)}", body, timeout_s=timeout_s)

    def delete_policy(self, vhost: str, name: str, *, timeout_s: float = 10.0) -> bool:
        """Delete a policy; return whether it was there."""
        return _forgive_missing(lambda: self.delete(f"policies/{_part(vhost)}/{_part(name)}", timeout_s=timeout_s))

    def declare_exchange(self, vhost: str, name: str, *, kind: str = "direct", timeout_s: float = 10.0) -> None:
        body: Json = {"type": kind, "durable": True, "auto_delete": False, "arguments": {}}
        self.put(f"exchanges/{_part(vhost)}/{_part(name)}", body, timeout_s=timeout_s)

    def bind_queue(self, vhost: str, queue: str, *, exchange: str, routing_key: str, timeout_s: float = 10.0) -> None:
        body: Json = {"routing_key": routing_key, "arguments": {}}
        self.post(f"bindings/{_part(vhost)}/e/{_part(exchange)}/q/{_part(queue)}", body, timeout_s=timeout_s)

    def declare_queue(
        self,
        vhost: str,
        name: str,
        *,
        arguments: Mapping[str, object] | None = None,
        node: str | None = None,
        durable: bool = True,
        timeout_s: float = 15.0,
    ) -> None:
        """Declare a queue; its leader is on ``node`` (an Erlang node name) where one is given."""
        body: Json = {"durable": durable, "auto_delete": False, "arguments": dict(arguments or {})}
        if node is not None:
            body["node"] = node
        self.put(f"queues/{_part(vhost)}/{_part(name)}", body, timeout_s=timeout_s)

    def expect_queues(self, vhost: str, names: Collection[str]) -> None:
        """Clients are going to declare these: they belong to the virtual host as what is declared here does."""

    def purge_queue(self, vhost: str, name: str, *, timeout_s: float = 15.0) -> None:
        """Drop all messages that are ready."""
        self.delete(f"queues/{_part(vhost)}/{_part(name)}/contents", timeout_s=timeout_s)

    def delete_queue(self, vhost: str, name: str, *, timeout_s: float = 15.0) -> bool:
        """Whether it was there."""
        return _forgive_missing(lambda: self.delete(f"queues/{_part(vhost)}/{_part(name)}", timeout_s=timeout_s))

    def queue(self, vhost: str, name: str) -> Json:
        answer: Json = self.get(f"queues/{_part(vhost)}/{_part(name)}", params={"columns": QUEUE_COLUMNS})
        return answer

    def queues(self, vhost: str, *, columns: Collection[str] = (), timeout_s: float | None = None) -> list[Json]:
        """One mapping a queue of the virtual host. Counters lag by the statistics interval, 1 s by default."""
        wanted = ",".join(columns) or QUEUE_COLUMNS
        answer: list[Json] = self.get(f"queues/{_part(vhost)}", params={"columns": wanted}, timeout_s=timeout_s)
        return answer

    def queue_states(self, vhost: str, *, timeout_s: float | None = None) -> list[Json]:
        """As ``queues``, without statistics other than the number of messages: cheap enough for every second, and
        quicker to answer while a node is cut off. It does not ask the queues, so which mirrors are synchronised
        may be out of date for ever: 3.10 did not list a mirror that had been synchronised by its return."""
        params = {"disable_stats": "true", "enable_queue_totals": "true"}
        answer: list[Json] = self.get(f"queues/{_part(vhost)}", params=params, timeout_s=timeout_s)
        return answer

    def connection_states(self, vhost: str, *, timeout_s: float | None = None) -> list[str]:
        """The state of each connection to the virtual host, whichever node it is of: running, flow, blocked, ..."""
        rows = self.get(f"vhosts/{_part(vhost)}/connections", params={"columns": "state"}, timeout_s=timeout_s)
        return [str(row["state"]) for row in rows if "state" in row]

    def definitions(self, vhost: str, *, timeout_s: float = 10.0) -> Json:
        """``queues``, ``bindings``, ``policies`` and more of the virtual host, as the node itself knows them: a node
        answers from its own copy of the metadata store and asks no other (rabbit_mgmt_wm_definitions; on 3.10 dirty
        reads of Mnesia's local tables)."""
        answer: Json = self.get(f"definitions/{_part(vhost)}", timeout_s=timeout_s)
        return answer

    def bindings(self, vhost: str, *, timeout_s: float = 10.0) -> list[Json]:
        """Return all bindings of the virtual host, those of exclusive queues too, as the node itself knows them."""
        rows: list[Json] = self.get(f"bindings/{_part(vhost)}", timeout_s=timeout_s)
        return rows

    def import_definitions(self, definitions: Mapping[str, object], *, timeout_s: float = 60.0) -> None:
        self.post("definitions", dict(definitions), timeout_s=timeout_s)

    def close(self) -> None:
        self._client.close()


def dead_letters_kept(queue: Mapping[str, Any]) -> int:
    """Of a row of ``ManagementApi.queue_states``, how many dead letters the queue keeps until another has taken
    them: quorum queues count them as messages that are neither ready nor unacknowledged. 0 where it has no numbers."""
    if queue.get("type") != "quorum" or "messages" not in queue:
        return 0
    kept: int = queue["messages"] - queue["messages_ready"] - queue["messages_unacknowledged"]
    return max(0, kept)


def _listed(error: ApiError) -> set[Alarm]:
    """The alarms of a health check that failed. Raises the error where it is not such an answer."""
    try:
        told = [(str(row["node"]), str(row["resource"])) for row in json.loads(error.text)["alarms"]]
    except (ValueError, LookupError, TypeError):
        raise error from None
    return {(node, _RESOURCES.get(what, what)) for node, what in told if what not in _BLOCKING_NOBODY}


def _part(name: str) -> str:
    """A name as one segment of a path: the virtual host ``/`` is ``%2F``."""
    return quote(name, safe="")


def _forgive_missing(call: Callable[[], object]) -> bool:
    """Whether it was there."""
    try:
        call()
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
