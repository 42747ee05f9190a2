"""Addresses of nodes in cluster files that no client could use, or of which a part would be ignored."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode


@pytest.mark.parametrize(
    ("field", "address", "text"),
    [
        ("amqp", "amqp://h1:0", "is no address; write amqp://HOST:PORT"),
        ("amqp", "amqp://h 1:5672", "is no address"),
        ("amqp", "amqp://h1:5672\n", "is no address"),
        ("amqp", "amqp://h1:5672/orders", "has a virtual host in it"),
        ("management", "http://h1:0", "is no address; write http://HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_used_as_it_is_written_is_refused(field: str, address: str, text: str) -> None:
    stated = {"name": "rabbit@h1", "zone": "a", "amqp": "amqp://h1:5672/", "management": "http://h1:15672/prefix"}
    AttachedNode.model_validate(stated)
    with pytest.raises(ValidationError, match=text):
        AttachedNode.model_validate({**stated, field: address})
