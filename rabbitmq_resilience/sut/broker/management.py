"""Call the broker's management HTTP API, with timeouts short enough for a cluster under faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.tools.closing import Closing

Json = dict[str, Any]

#: The columns of queues: leader, followers and number of messages. The cost of a listing grows with its columns.
QUEUE_COLUMNS = (
    "name,type,node,state,leader,members,online,slave_nodes,synchronised_slave_nodes,"
    "messages,messages_ready,messages_unacknowledged"
)
NODE_COLUMNS = "name,type,running,partitions,mem_used,mem_limit,mem_alarm,disk_free_limit,disk_free_alarm"

#: A node and the resource of its alarm: ``("rabbit@host1", "memory")``.
Alarm = tuple[str, str]
#: {resource of an alarm: the column of a node that shows whether the alarm is raised}.
ALARMS = {"memory": "mem_alarm", "disk": "disk_free_alarm"}
#: Other names of resources in health checks (rabbit_alarm), and their alarms that block no publisher.
_RESOURCES, _NOT_BLOCKING = {"disk space": "disk"}, frozenset({"file descriptors"})

#: Health checks that show whether a node may be stopped without loss.
QUORUM_CRITICAL, MIRROR_CRITICAL = "node-is-quorum-critical", "node-is-mirror-sync-critical"


class ApiError(Exception):
    """The broker answered, and refused. ``status`` is the HTTP status, ``text`` the text of the answer."""

    def __init__(self, status: int, url: str, text: str) -> None:
        super().__init__(f"{url} answered {status}: {text[:500]}")
        self.status = status
        self.url = url
        self.text = text


class ApiUnreachable(Exception):
    """The node did not answer in time: it is down, paused, cut off, or still booting."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} is not reachable: {reason}")
        self.url = url


class ManagementApi(Closing):
    """The HTTP API of one node. Every call may raise ``ApiError`` or ``ApiUnreachable``, and no other error.

    ``timeout_s`` bounds each read. While a peer is cut off for less than ``net_ticktime``, some answers come late or
    never.
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
        shown_path: str | None = None,
    ) -> Any:
        """Send one request to ``/api/<path>``. Return the decoded JSON answer, or None if it has no content.
        ``shown_path``: the path in error messages, if they must not show all of ``path``."""
        to, url = (f"{self.base_url}/api/{each}" for each in (path, path if shown_path is None else shown_path))
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
        """Return whether a feature flag is enabled; False also if the broker does not know the flag."""
        flags = self.get("feature-flags")
        return any(each["name"] == flag and each["state"] == "enabled" for each in flags)

    def enable_feature_flag(self, flag: str, *, timeout_s: float = 120.0) -> None:
        """Enable a feature flag on all nodes. Return when it is enabled. Raise ApiError if the broker does not know the
        flag or cannot enable it."""
        self.put(f"feature-flags/{_part(flag)}/enable", {"name": flag}, timeout_s=timeout_s)

    def nodes(self) -> list[Json]:
        """Return one mapping for each cluster member: ``name``, ``type`` (disc, ram), ``running``, ``mem_used``, ..."""
        answer: list[Json] = self.get("nodes", params={"columns": NODE_COLUMNS})
        return answer

    def silent_nodes(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the Erlang names of running members without statistics. Their statistics have ended (3.10.8), or have
        not begun yet. No node reports the connections of such members, nor the states of their queues."""
        rows = self.get("nodes", params={"columns": "name,running,mem_used"}, timeout_s=timeout_s)
        return sorted(str(row["name"]) for row in rows if row.get("running") and "mem_used" not in row)

    def running_nodes(self) -> frozenset[str]:
        """Return the Erlang names of the members that this node sees running."""
        return frozenset(str(node["name"]) for node in self.nodes() if node.get("running"))

    def is_critical(self, check: str) -> bool:
        """Return whether a health check (such as ``QUORUM_CRITICAL``) says that stopping this node would lose data or a
        quorum. Return False for mirrors if the version has no mirrors any more. Raise ``ApiError`` if the version does
        not have the check yet."""
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
        """Return the memory and disk alarms that are raised anywhere in the cluster, as this node knows them.

        They come from a health check, because statistics end for good if they fail too often (3.10.8). Only a version
        without that health check is asked for its statistics. Raise ``ApiError`` if these show no node.
        """
        try:
            self.get("health/checks/alarms", timeout_s=timeout_s)
        except ApiError as error:
            if error.status == 503:
                return _listed(error)
            if error.status != 404:
                raise
            rows = self.get("nodes", params={"columns": ",".join(("name", *ALARMS.values()))}, timeout_s=timeout_s)
            states = {(str(row["name"]), what): row[key] for row in rows for what, key in ALARMS.items() if key in row}
            if not states:
                raise
            return {alarm for alarm, is_raised in states.items() if is_raised}
        return set()

    def rebalance_queues(self) -> None:
        """Ask the broker to spread leaders evenly over the nodes. Return before this is done."""
        self.post("rebalance/queues", {})

    def vhosts(self) -> list[str]:
        return [str(vhost["name"]) for vhost in self.get("vhosts", params={"columns": "name"})]

    def create_vhost(self, vhost: str, *, timeout_s: float = 15.0) -> None:
        """Create a virtual host and give this API's user all permissions in it."""
        self.put(f"vhosts/{_part(vhost)}", {}, timeout_s=timeout_s)
        self.set_permissions(vhost)

    def delete_vhost(self, vhost: str, *, timeout_s: float = 30.0) -> None:
        """Delete a virtual host with everything in it. A missing virtual host is no error."""
        _forgive_missing(lambda: self.delete(f"vhosts/{_part(vhost)}", timeout_s=timeout_s))

    def set_permissions(self, vhost: str) -> None:
        allow_all = {"configure": ".*", "write": ".*", "read": ".*"}
        part = _part(vhost)
        path, shown_path = (f"permissions/{part}/{user}" for user in (_part(self._user), "USER"))
        self.request("PUT", path, body=allow_all, shown_path=shown_path)

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
        """Delete a policy. Return whether it existed."""
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
        """Declare a queue. If ``node`` (an Erlang node name) is given, the leader is on that node."""
        body: Json = {"durable": durable, "auto_delete": False, "arguments": dict(arguments or {})}
        if node is not None:
            body["node"] = node
        self.put(f"queues/{_part(vhost)}/{_part(name)}", body, timeout_s=timeout_s)

    def expect(self, vhost: str, *, queues: Collection[str] = (), exchanges: Collection[str] = ()) -> None:
        """Announce what clients will declare, or have declared. It belongs to the virtual host like what is declared
        here."""

    def purge_queue(self, vhost: str, name: str, *, timeout_s: float = 15.0) -> None:
        """Drop all ready messages of a queue."""
        self.delete(f"queues/{_part(vhost)}/{_part(name)}/contents", timeout_s=timeout_s)

    def delete_queue(self, vhost: str, name: str, *, timeout_s: float = 15.0) -> bool:
        """Delete a queue. Return whether it existed."""
        return _forgive_missing(lambda: self.delete(f"queues/{_part(vhost)}/{_part(name)}", timeout_s=timeout_s))

    def queue(self, vhost: str, name: str) -> Json:
        answer: Json = self.get(f"queues/{_part(vhost)}/{_part(name)}", params={"columns": QUEUE_COLUMNS})
        return answer

    def queues(self, vhost: str, *, columns: Collection[str] = (), timeout_s: float | None = None) -> list[Json]:
        """Return one mapping for each queue of the virtual host. Counters lag by the statistics interval, 1 s by
        default."""
        wanted = ",".join(columns) or QUEUE_COLUMNS
        answer: list[Json] = self.get(f"queues/{_part(vhost)}", params={"columns": wanted}, timeout_s=timeout_s)
        return answer

    def queue_states(self, vhost: str, *, timeout_s: float | None = None) -> list[Json]:
        """Return the queues as ``queues`` does, but with no statistics except the number of messages.

        This is cheap enough for every second, and answers sooner while a node is cut off. The broker does not ask the
        queues, so the list of synchronised mirrors may stay out of date: 3.10 did not list a mirror that was
        synchronised when it came back.
        """
        params = {"disable_stats": "true", "enable_queue_totals": "true"}
        answer: list[Json] = self.get(f"queues/{_part(vhost)}", params=params, timeout_s=timeout_s)
        return answer

    def connection_states(self, vhost: str, *, timeout_s: float | None = None) -> list[str]:
        """Return the state of each connection to the virtual host, on any node: running, flow, blocked, ..."""
        rows = self.get(f"vhosts/{_part(vhost)}/connections", params={"columns": "state"}, timeout_s=timeout_s)
        return [str(row["state"]) for row in rows if "state" in row]

    def definitions(self, vhost: str, *, timeout_s: float = 10.0) -> Json:
        """Return ``queues``, ``bindings``, ``policies`` and more of the virtual host, as this node knows them.

        A node answers from its own copy of the metadata store and asks no other node (rabbit_mgmt_wm_definitions; on
        3.10 dirty reads of Mnesia's local tables).
        """
        answer: Json = self.get(f"definitions/{_part(vhost)}", timeout_s=timeout_s)
        return answer

    def exchanges(self, vhost: str, *, timeout_s: float = 10.0) -> list[Json]:
        """Return name, type and arguments of all exchanges of the virtual host, also of those that each one has."""
        columns = {"columns": "name,type,arguments"}
        rows: list[Json] = self.get(f"exchanges/{_part(vhost)}", params=columns, timeout_s=timeout_s)
        return rows

    def policies(self, vhost: str, *, timeout_s: float = 10.0) -> list[Json]:
        """Return all policies of the virtual host."""
        rows: list[Json] = self.get(f"policies/{_part(vhost)}", timeout_s=timeout_s)
        return rows

    def bindings(self, vhost: str, *, timeout_s: float = 10.0) -> list[Json]:
        """Return all bindings of the virtual host, also those of exclusive queues, as this node knows them."""
        rows: list[Json] = self.get(f"bindings/{_part(vhost)}", timeout_s=timeout_s)
        return rows

    def import_definitions(self, definitions: Mapping[str, object], *, timeout_s: float = 60.0) -> None:
        self.post("definitions", dict(definitions), timeout_s=timeout_s)

    def close(self) -> None:
        self._client.close()


def dead_letters_kept(queue: Mapping[str, Any]) -> int:
    """Return how many dead letters a queue keeps until another queue has taken them. ``queue`` is a row of
    ``ManagementApi.queue_states``. Quorum queues count them as messages that are neither ready nor unacknowledged.
    Return 0 if the row has no numbers."""
    if queue.get("type") != "quorum" or "messages" not in queue:
        return 0
    kept: int = queue["messages"] - queue["messages_ready"] - queue["messages_unacknowledged"]
    return max(0, kept)


def _listed(error: ApiError) -> set[Alarm]:
    """Return the alarms of a failed health check. Raise ``error`` if its text does not list alarms."""
    try:
        alarms = [(str(row["node"]), str(row["resource"])) for row in json.loads(error.text)["alarms"]]
    except (ValueError, LookupError, TypeError):
        raise error from None
    return {(node, _RESOURCES.get(what, what)) for node, what in alarms if what not in _NOT_BLOCKING}


def _part(name: str) -> str:
    """Return a name as one segment of a path: the virtual host ``/`` is ``%2F``."""
    return quote(name, safe="")


def _forgive_missing(call: Callable[[], object]) -> bool:
    """Call ``call``, which deletes something. Return whether it existed."""
    try:
        call()
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
