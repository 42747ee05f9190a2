"""Compare what a cluster has that is not ours before and after a run: a run must not change it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi

#: For each kind in the definitions, what one of it is called, and the fields that identify it.
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

#: The name of each thing, with a hash of all its fields, as users hold hashes of their passwords.
Things = Mapping[str, str]


def things(definitions: Mapping[str, Any], *, ours: Collection[str]) -> Things:
    """Return the things in ``definitions`` (``GET /api/definitions``), without the virtual hosts ``ours``."""
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
    """Return the things that the node lists; None if our user may not see them, or the node does not answer."""
    try:
        return things(api.get("definitions", timeout_s=30.0), ours=ours)
    except (ApiError, ApiUnreachable):
        return None


def changes(before: Things, after: Things) -> list[str]:
    """Return, in words, each thing that is new, gone, or changed."""
    came = [f"{name} is new" for name in sorted(after.keys() - before.keys())]
    went = [f"{name} is gone" for name in sorted(before.keys() - after.keys())]
    other = [f"{name} is changed" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return [*came, *went, *other]
