"""Tell messages apart by what an application gave them, without what a broker adds on their way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

_HASH_BYTES = 8
#: The variable in which the recorder of a tap gets the key of its hashes. It is kept nowhere else.
KEY_VARIABLE = "RABBITMQ_RESILIENCE_TAP_KEY"
#: Headers that brokers add or remove: dead lettering, delivery counts, routes and the time of arrival.
_OF_BROKERS = frozenset(
    {"x-death", "x-delivery-count", "x-acquired-count", "x-first-death-exchange", "x-first-death-queue"}
    | {"x-first-death-reason", "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"}
    | {"x-stream-offset", "x-routed-by", "timestamp_in_ms", "BCC", "x-opt-deaths"}
)
#: Made once, as ``json.dumps`` would make one for each message.
_SAID = json.JSONEncoder(sort_keys=True, default=repr, ensure_ascii=False)
#: Properties that say what the message is. Brokers may change the others (``expiration`` of a dead letter, ...).
_OF_APPLICATIONS = ("content_type", "content_encoding", "correlation_id", "reply_to", "timestamp", "type", "app_id")


class Hashes:
    """Hash bodies and identities with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def body(self) -> Any:
        """Return a hash to be updated with the pieces of a body."""
        return blake2b(digest_size=_HASH_BYTES, key=self._key)

    def identity(self, properties: Mapping[str, Any], body: bytes) -> tuple[int, bool]:
        """Return the identity of a message with that digest of its body, and whether its message_id alone gives it."""
        if "message_id" in properties:
            return self.named(properties["message_id"]), True
        return self._hash(["content", _content(properties), body.hex()]), False

    def named(self, message_id: str) -> int:
        """Return the identity of all messages with that message_id."""
        return self._hash(["id", message_id])

    def _hash(self, said: Sequence[Any]) -> int:
        text = _SAID.encode(said)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES, key=self._key).digest()
        return int.from_bytes(digest)


def _content(properties: Mapping[str, Any]) -> dict[str, Any]:
    content = {name: value for name in _OF_APPLICATIONS if (value := properties.get(name)) is not None}
    headers = {name: value for name, value in properties.get("headers", {}).items() if name not in _OF_BROKERS}
    return content | ({"headers": headers} if headers else {})
