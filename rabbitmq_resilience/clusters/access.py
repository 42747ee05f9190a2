"""How clients are let in: where a broker listens, as whom they come, and whom they trust.

A password goes to worker processes in their environment, which only their own user can read, and into no file.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from pika import PlainCredentials, SSLOptions

#: The user that every broker starts with, allowed in over loopback only.
GUEST = "guest"

VARIABLE = "RABBITMQ_RESILIENCE_ACCESS"


class Endpoint(NamedTuple):
    """Where to connect. ``tls_name``: the name that the certificate of a broker must have; empty: no TLS is spoken."""

    host: str
    port: int
    tls_name: str = ""


@dataclass(frozen=True)
class Access:
    """``ca``: the file with the certificates of those who vouch for brokers; None: whom this machine trusts."""

    user: str = GUEST
    password: str = field(default=GUEST, repr=False)
    ca: str | None = None

    def parameters(self, endpoint: Endpoint) -> dict[str, Any]:
        """What pika's connection parameters say of this."""
        tls = SSLOptions(self.tls(), endpoint.tls_name) if endpoint.tls_name else None
        credentials = PlainCredentials(self.user, self.password)
        return {"host": endpoint.host, "port": endpoint.port, "credentials": credentials, "ssl_options": tls}

    def tls(self) -> ssl.SSLContext:
        """Raises OSError or ssl.SSLError where ``ca`` holds no certificates."""
        return ssl.create_default_context(cafile=self.ca)

    def environ(self) -> Mapping[str, str]:
        """For a process that connects with it."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def of_this_process(cls) -> Self:
        """What the process that started this one has said, or the user that every broker starts with."""
        told = os.environ.get(VARIABLE)
        return cls(**json.loads(told)) if told else cls()
