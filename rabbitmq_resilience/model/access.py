"""Describe how clients connect: the broker's address, the user, and the trusted certificate authorities.

Worker processes get the password in their environment, which only their own user can read. No file holds the password.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from pika import PlainCredentials, SSLOptions

#: The user that every broker starts with. Brokers accept this user over loopback only.
GUEST = "guest"

VARIABLE = "RABBITMQ_RESILIENCE_ACCESS"


class Endpoint(NamedTuple):
    """The address of a listener. ``tls_name``: the name that the broker's certificate must have; empty for no TLS."""

    host: str
    port: int
    tls_name: str = ""


@dataclass(frozen=True)
class Access:
    """The user and trust settings of clients. ``ca``: the file with the certificates of the authorities that sign
    brokers' certificates; None for the authorities that this machine trusts."""

    user: str = GUEST
    password: str = field(default=GUEST, repr=False)
    ca: str | None = None

    def parameters(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the keyword arguments for pika's connection parameters."""
        tls = SSLOptions(self.tls(), endpoint.tls_name) if endpoint.tls_name else None
        credentials = PlainCredentials(self.user, self.password)
        return {"host": endpoint.host, "port": endpoint.port, "credentials": credentials, "ssl_options": tls}

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of clients. Raise OSError or ssl.SSLError if ``ca`` holds no certificates."""
        return ssl.create_default_context(cafile=self.ca)

    def environ(self) -> Mapping[str, str]:
        """Return the environment variables that hand this access to a worker process."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the access that the parent process set in the environment, or the default user's."""
        text = os.environ.get(VARIABLE)
        return cls(**json.loads(text)) if text else cls()
