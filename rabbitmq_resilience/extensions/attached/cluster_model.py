"""Describe what a cluster file can state: the nodes of an existing cluster, and what may be done to them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from rabbitmq_resilience.extensions.attached.offers import Command, Offers
from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.model.topology import PartitionHandling, PauseIfAllDown

_AMQP = {"amqp": 5672, "amqps": 5671}
_HTTP = {"http": 80, "https": 443}


#: The fields that hold a ``Secret``, and the message about a wrong one.
SECRETS = ("user", "password")
BY_REFERENCE = "is read from one place: env: NAME, with the name of a variable, or file: PATH"


class Secret(Spec):
    """A user's name or a password, by reference.

    ``env`` names a variable of the environment. ``file`` names a file whose first line is the secret, with its path
    relative to the cluster file. Messages about errors show neither, as the secret itself may stand there by mistake;
    a name in capitals, as variables have it, is shown.
    """

    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")] | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError(BY_REFERENCE)
        return self

    def read(self, folder: Path) -> str:
        """Return the secret. Raise ValueError if it is missing; the text does not show what may be the secret."""
        if self.env is not None:
            found = os.environ.get(self.env, "")
            if not found:
                name = self.env if self.env.isupper() else "of that name"
                raise ValueError(f"the environment has no variable {name}, or an empty one; set it")
            return found
        assert self.file is not None, "validated: exactly one of env and file is given"
        try:
            first = (folder / self.file).read_text(encoding="utf-8").splitlines()[:1]
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "is no text"
            raise ValueError(f"its file, relative to {folder.resolve()}, cannot be read: {why}") from None
        if not first or not first[0]:
            raise ValueError("the first line of its file is empty")
        return first[0]


FORWARD = "port-forward:"
_PORT_MAX = 65_535
_FORWARDED = re.compile(rf"{FORWARD}(?P<port>[1-9][0-9]{{0,4}})")


def forwarded_port(address: str | None) -> int | None:
    """Return the port of the node's pod if ``address`` is one (``port-forward:5672``), otherwise None."""
    found = _FORWARDED.fullmatch(address or "")
    port = 0 if found is None else int(found["port"])
    return port if 0 < port <= _PORT_MAX else None


def _url(schemes: Mapping[str, int]) -> AfterValidator:
    """Return a validator of addresses. Its messages never show the address, as there may be a secret in it."""

    def checked(text: str) -> str:
        if forwarded_port(text) is not None:
            return text
        if text.startswith(FORWARD):
            raise ValueError(f"is no port of a pod; write {FORWARD}PORT, with 1 to {_PORT_MAX}")
        if "@" in text:
            raise ValueError(
                "has a user or a password in it; leave them out, and state user: and password: by reference"
            )
        if "?" in text or "#" in text:
            raise ValueError("has something behind a ? or # in it; leave that out")
        try:
            parts = urlsplit(text)
            usable = parts.scheme in schemes and parts.hostname and parts.port != 0 and text.split() == [text]
        except ValueError:  # the port is no number
            usable = False
        else:
            if usable and schemes is _AMQP and parts.path not in ("", "/"):
                raise ValueError("has a virtual host in it; leave that out, and state virtual_host: if it is meant")
        known = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
        if not usable:
            raise ValueError(f"is no address; write {known}")
        return text

    return AfterValidator(checked)


def _place(address: str) -> str:
    """Return the host and port of ``address``; empty if it is the port of a pod, or no address."""
    parts = urlsplit(address)
    if not parts.hostname or forwarded_port(address) is not None:
        return ""
    return f"{parts.hostname}:{parts.port or {**_AMQP, **_HTTP}[parts.scheme]}"


def _metrics(text: str) -> str:
    parts = urlsplit(text)
    if forwarded_port(text) is not None:
        return text
    if parts.path.rstrip("/") not in ("", "/metrics"):
        raise ValueError("has a path; leave out what follows the port: several paths of the broker's own are read")
    return text


AmqpUrl = Annotated[str, _url(_AMQP)]
MetricsUrl = Annotated[str, _url({"http": 80}), AfterValidator(_metrics)]
HttpUrl = Annotated[str, _url(_HTTP)]


class AttachedNode(Spec):
    """A node of the cluster; ``name`` is its Erlang name.

    If ``offers`` has kubernetes, addresses may be ports of the node's pod (``port-forward:5672``), which are reached
    through the API server, without TLS. ``zone`` is any name that distinguishes zones. ``prometheus`` is where the
    broker exposes its metrics, without TLS; without it, scenarios that are measured are refused.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")]
    zone: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    amqp: AmqpUrl
    management: HttpUrl
    prometheus: MetricsUrl | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses that are stated."""
        return tuple(filter(None, (self.amqp, self.management, self.prometheus)))

    @property
    def endpoint(self) -> Endpoint:
        parts = urlsplit(self.amqp)
        assert parts.hostname is not None, "an address has a host"
        host, port = parts.hostname, parts.port or _AMQP[parts.scheme]
        return Endpoint(host, port, host if parts.scheme == "amqps" else "")

    @property
    def host(self) -> str:
        return self.name.partition("@")[2]


class BoundedMetric(Spec):
    """A query to a Prometheus of the cluster's owners, and a bound on each value that it gives."""

    prometheus: HttpUrl
    query: Command
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.above is None and self.below is None:
            raise ValueError("needs a bound: above: NUMBER, or below: NUMBER")
        return self


class AbortWhen(Spec):
    """Conditions that end a run early: everything is healed then, and no other run may begin.

    ``alarm``: a broker has an alarm of memory or disk. ``check``: a command for this machine's shell ends with another
    status than 0. ``metrics``: one of these queries gives a value beyond its bound. A condition that cannot be checked
    for 30 s ends a run as well.
    """

    alarm: bool = False
    check: Command | None = None
    metrics: tuple[BoundedMetric, ...] = ()


class ClusterFile(Spec):
    """An existing cluster.

    ``cluster`` is its name, as ``rabbitmqctl cluster_status`` shows it at one of the nodes; nothing is done if a
    cluster of another name answers. ``user`` and ``password`` belong to a user who may ask the management API about
    everything: with the tag ``administrator`` if a run has to make its own virtual host, otherwise ``monitoring``.
    ``virtual_host`` names an existing, empty one; without it, each run makes its own and removes it again.

    ``partition_handling`` and ``net_ticktime_s`` are stated, as brokers do not report them. ``allow`` says which acts
    may be done, and at how many nodes at once; all other acts are refused.
    """

    version: Literal[1] = 1
    cluster: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    nodes: Annotated[tuple[AttachedNode, ...], Field(min_length=1)]
    user: Secret
    password: Secret
    ca: Path | None = None
    virtual_host: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    partition_handling: PartitionHandling
    pause_if_all_down: PauseIfAllDown | None = None
    net_ticktime_s: Annotated[int, Field(ge=1, le=3600)] = 60
    offers: Offers = Offers()
    allow: Mapping[str, Annotated[int, Field(ge=1, le=1000)]] = {}
    abort_when: AbortWhen = AbortWhen()

    @field_validator("allow")
    @classmethod
    def _known(cls, allow: Mapping[str, int]) -> Mapping[str, int]:
        if unknown := sorted(allow.keys() - ACTIONS.keys()):
            near = difflib.get_close_matches(unknown[0], ACTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ACTIONS)}"
            raise ValueError(f"there is no {', '.join(unknown)}; {hint}")
        return allow

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [node.name for node in self.nodes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"nodes: {', '.join(twice)} is named twice")
        if self.virtual_host == "/":
            raise ValueError("virtual_host: / is the default of all clients; give one for these runs alone, or none")
        if self.offers.ssh and (strangers := sorted(self.offers.ssh.addresses.keys() - set(names))):
            raise ValueError(f"offers.ssh.addresses: {', '.join(strangers)} is none of the nodes {', '.join(names)}")
        addresses = (text for one in self.nodes for text in one.addresses)
        if self.offers.kubernetes is None and (texts := sorted({one for one in addresses if forwarded_port(one)})):
            raise ValueError(f"nodes: {', '.join(texts)} goes with offers: {{kubernetes: ...}}")
        if self.offers.kubernetes and (strangers := sorted(self.offers.kubernetes.pods.keys() - set(names))):
            raise ValueError(f"offers.kubernetes.pods: {', '.join(strangers)} is none of the nodes {', '.join(names)}")
        if (self.partition_handling == "pause_if_all_down") != (self.pause_if_all_down is not None):
            raise ValueError("partition_handling: pause_if_all_down goes with pause_if_all_down: {nodes: [...]}")
        if self.pause_if_all_down and (unknown := sorted(set(self.pause_if_all_down.nodes) - set(names))):
            raise ValueError(f"pause_if_all_down.nodes: {', '.join(unknown)} is none of the nodes {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _apart(self) -> Self:
        """Refuse two nodes with one address: acts on the one would be done and proven at the other."""
        reached: dict[str, Callable[[AttachedNode], str]] = {
            "nodes: amqp": lambda node: _place(node.amqp),
            "nodes: management": lambda node: _place(node.management),
            "nodes: prometheus": lambda node: _place(node.prometheus or ""),
        }
        if ssh := self.offers.ssh:
            reached["offers.ssh.addresses"] = lambda node: ssh.host_of(node.name).lower()
        if kubernetes := self.offers.kubernetes:
            reached["offers.kubernetes.pods"] = lambda node: kubernetes.pod_of(node.name)
        for field, place in reached.items():
            found: dict[str, str] = {}
            for node in self.nodes:
                other = found.setdefault(place(node), node.name) if place(node) else node.name
                if other != node.name:
                    raise ValueError(
                        f"{field}: {other} and {node.name} are both at {place(node)}; state an own place for each"
                    )
        return self

    def access(self, folder: Path) -> Access:
        """Return the credentials. Raise ValueError with the name of the field that cannot be read."""
        read = {}
        for name in SECRETS:
            secret: Secret = getattr(self, name)
            try:
                read[name] = secret.read(folder)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return Access(**read, ca=None if self.ca is None else str(folder / self.ca))
