"""What a cluster has that is not ours, looked at before and after a run: nothing of it may be touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi

#: What definitions have, what one of it is called, and the fields that name it.
_NAMED_BY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "vhosts": ("virtual host", ("name",)),
    "users": ("user", ("name",)),
    "permissions": ("permission", ("user", "vhost")),
    "topic_permissions": ("topic permission", ("user", "vhost", "exchange")),
    "parameters": ("parameter", ("vhost", "component", "name")),
    "global_parameters": ("global parameter", ("name",)),
    "policies": ("policy", ("vhost", "name")),
    "queues": ("queue", ("vhost", "name")),
    "exchanges": ("exchange", ("vhost", "name")),
    "bindings": ("binding", ("vhost", "source", "destination_type", "destination", "routing_key")),
}

#: What each thing is called, and a hash of all that it is: users have hashes of their passwords.
Things = Mapping[str, str]


def things(definitions: Mapping[str, Any], *, ours: Collection[str]) -> Things:
    """What ``GET /api/definitions`` tells, but for the virtual hosts ``ours`` and what is in them."""
    found: dict[str, str] = {}
    for kind, (singular, fields) in _NAMED_BY.items():
        for row in definitions.get(kind, ()):
            vhost = row.get("name") if kind == "vhosts" else row.get("vhost")
            if vhost not in ours:
                name = " ".join(str(row.get(field, "")) for field in fields)
                text = json.dumps(row, sort_keys=True)
                found[f"{singular} {name}"] = hashlib.sha256(text.encode()).hexdigest()
    return found


def look(api: ManagementApi, *, ours: Collection[str]) -> Things | None:
    """None where the user may not see it, or the node does not answer."""
    try:
        return things(api.get("definitions", timeout_s=30.0), ours=ours)
    except (ApiError, ApiUnreachable):
        return None


def changes(before: Things, after: Things) -> list[str]:
    """In words, one for each thing that came, went or is another one."""
    came = [f"{name} is new" for name in sorted(after.keys() - before.keys())]
    went = [f"{name} is gone" for name in sorted(before.keys() - after.keys())]
    other = [f"{name} is another" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return [*came, *went, *other]
