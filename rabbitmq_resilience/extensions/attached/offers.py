"""Describe what a cluster file can offer: the ways by which faults act on brokers that are not ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rabbitmq_resilience.model.actions import Action, ActionWay, Ends
from rabbitmq_resilience.model.base import Spec


def _log(text: str) -> str:
    try:
        fields = {(name, form, conversion) for _, name, form, conversion in Formatter().parse(text) if name is not None}
    except ValueError:  # a brace that is not closed
        fields = {("", "", None)}
    if not fields <= {("node", "", None), ("host", "", None)}:
        raise ValueError("may have {node} (the Erlang name) and {host} (behind its @) in it, and no other braces")
    return text


Command = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]


class BrokerService(Spec):
    """How the broker of a machine is started and stopped: as a unit of systemd, or by commands of the machine's shell.

    The broker must run when ``start`` returns, or soon after.
    """

    unit: Annotated[str, StringConstraints(pattern=r"^[\w@.\-:]+$")] | None = None
    start: Command | None = None
    stop: Command | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.unit is None) == (self.start is None and self.stop is None):
            raise ValueError("is a unit of systemd (unit: rabbitmq-server), or start: and stop: with commands")
        if self.unit is None and None in (self.start, self.stop):
            raise ValueError("start and stop belong together")
        return self


class Ssh(Spec):
    """Machines that are reached by ssh, each by its ``addresses`` entry or by the host in its node's name.

    ``user`` is root, or a user who may run everything by ``sudo`` without a password. ``key`` is the file of a private
    key; without it, the ssh agent is asked. Each host must be in ``known_hosts`` (default: those of this user), no
    matter what else is stated. ``config``: a file like ssh_config(5) that says how hosts are reached, for example by a
    ProxyJump; without it no such file is read, not even that of this user. ``disk``: a folder that belongs to the
    broker's user, on the file system where the broker stores its data; this disk may be filled.
    """

    user: Annotated[str, StringConstraints(pattern=r"^[\w.\-]+$")] = "root"
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    addresses: Mapping[str, Annotated[str, StringConstraints(pattern=r"^[^@/\s]+$")]] = {}
    key: Path | None = None
    known_hosts: Path | None = None
    config: Path | None = None
    sudo: bool = False
    broker: BrokerService = BrokerService(unit="rabbitmq-server")
    #: With {node} for the Erlang name, {host} for the part behind the @.
    log: Annotated[str, StringConstraints(pattern=r"^/"), AfterValidator(_log)] = "/var/log/rabbitmq/{node}.log"
    cut: Literal["all_ports", "distribution"] = "all_ports"
    disk: Annotated[str, StringConstraints(pattern=r"^/[^\n]*$")] | None = None

    def host_of(self, node: str) -> str:
        """Return the host of the machine of the node with that Erlang name."""
        return self.addresses.get(node, node.partition("@")[2])

    def log_of(self, node: str) -> str:
        """Return the log file of the node with that Erlang name."""
        return self.log.format(node=node, host=node.partition("@")[2])

    def reached_by(self, node: str) -> str:
        return f"ssh {self.user}@{self.host_of(node)}"


class CommandedAct(Spec):
    """An act on a broker by the user's own command ``do``.

    ``proof`` ends with status 0 while the act is in effect, and with another status otherwise. The act ends by the
    command ``heal``, which may be run twice; by itself after FOR_S seconds (``ends: itself``); or not by this suite
    (``ends: never``).
    """

    do: Command
    proof: Command
    heal: Command | None = None
    ends: Literal["heal", "itself", "never"] = "heal"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.ends == "heal") != (self.heal is not None):
            raise ValueError("ends by heal: with a command, or without one by ends: itself, or ends: never")
        return self


class Commands(Spec):
    """The user's own commands, run by a shell of this machine.

    Their environment has NODE (the Erlang name), HOST (the part behind its @), ZONE and FOR_S. ``process`` prints a
    name of the broker's process, which differs after each start; it prints nothing while there is no process. ``cut``
    drops what NODE receives from PEER; its environment also has PEER and PEER_HOST.
    """

    process: Command
    kill: CommandedAct | None = None
    stop: CommandedAct | None = None
    pause: CommandedAct | None = None
    cut: CommandedAct | None = None

    def act(self, name: str) -> CommandedAct | None:
        found: CommandedAct | None = getattr(self, name, None)
        return found

    def reached_by(self, node: str) -> str:  # noqa: ARG002 - as the other ways
        return "your commands"


class Kubernetes(Spec):
    """Brokers in pods. The name of a pod is the first label of its node's host, or stated in ``pods``.

    ``kubeconfig`` and ``context``: by default those of kubectl, or the account of the pod in which this suite runs.

    Kubernetes starts brokers again by itself. ``kill`` and ``stop`` say whether the broker's container ends (SIGKILL to
    the broker, SIGTERM to the container) or its pod is deleted (without its grace period, and with it). All other acts
    add an ephemeral container to the broker's pod. Its ``image`` must have sh, bash, ss, and nft or iptables; by
    default it is the broker's own. The container stays in the pod's list until the pod is gone. ``cut_by`` says what
    acts on packets in place of rules from there: a NetworkPolicy, which needs a network that enforces such policies, or
    a NetworkChaos of Chaos Mesh.

    ``drain_node``: which pods are evicted if a node of Kubernetes is drained, those of this cluster's brokers or all;
    nothing in Kubernetes undoes that. ``lose_data: claim``: a broker's claims are deleted with its pod.
    ``restart_all``: whether the StatefulSet has to restart its pods, or the Cluster Operator has to have it do so.
    """

    namespace: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = "default"
    kubeconfig: Path | None = None
    context: str | None = None
    container: str = "rabbitmq"
    pods: Mapping[str, str] = {}
    image: str | None = None
    pull: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    kill: Literal["container", "pod"] = "container"
    stop: Literal["container", "pod"] = "container"
    cut: Literal["all_ports", "distribution"] = "all_ports"
    cut_by: Literal["rules", "network_policy", "chaos_mesh"] = "rules"
    drain_node: Literal["brokers", "all"] | None = None
    lose_data: Literal["claim"] | None = None
    restart_all: Literal["statefulset", "operator"] = "statefulset"

    @model_validator(mode="after")
    def _dropping(self) -> Self:
        if self.cut_by != "rules" and self.cut == "distribution":
            raise ValueError(f"cut: distribution goes with cut_by: rules; {self.cut_by} acts on whole pods")
        return self

    def pod_of(self, node: str) -> str:
        """Return the name of the pod of the node with that Erlang name."""
        return self.pods.get(node, node.partition("@")[2].partition(".")[0])

    def reached_by(self, node: str) -> str:
        context = f"context {self.context}" if self.context else "no context stated"
        return f"pod {self.namespace}/{self.pod_of(node)} ({context})"


class Offers(Spec):
    """The way by which faults act on brokers; without one, they act on links of our own clients only."""

    ssh: Ssh | None = None
    commands: Commands | None = None
    kubernetes: Kubernetes | None = None

    @property
    def way(self) -> str:
        """Return the way that is offered; empty if none is."""
        return "".join(self._offered)

    def way_of(self, action: Action) -> ActionWay | None:
        """Return the way by which the action is done here; None if nothing that is stated can do it."""
        offers = {"api": self, **{name: getattr(self, name) for name in self._offered}}
        return next((way for way in action.ways if way.backend in offers and way.fits(offers[way.backend])), None)

    def ends(self, action: Action) -> Ends:
        """Return how the action ends here."""
        stated = None if self.commands is None else self.commands.act(action.verb)
        way = self.way_of(action)
        return stated.ends if stated is not None else "watchdog" if way is None else way.ends

    def reached_by(self, node: str) -> str:
        """Return how the machine of the node is reached, for people; empty if no way is offered."""
        offer: Ssh | Commands | Kubernetes | None = self.ssh or self.commands or self.kubernetes
        return "" if offer is None else offer.reached_by(node)

    @property
    def _offered(self) -> list[str]:
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self._offered) > 1:
            raise ValueError(f"has one way, and not {' and '.join(self._offered)}")
        return self


_MODELS: Mapping[str, type[Spec]] = {"ssh": Ssh, "commands": Commands, "kubernetes": Kubernetes}


def demand(action: Action) -> str:
    """Return, for people, what a cluster file must state of which backend so that the action can be done."""
    return " or ".join(_demand(action, backend) for backend in sorted(action.backends))


def _demand(action: Action, backend: str) -> str:
    stated = [way.stated for way in action.ways if way.backend == backend and way.stated is not None]
    if not stated:
        return backend
    field, values = stated[0].field, [value for one in stated for value in one.values] or [stated[0].example]
    possible = get_args(_MODELS[backend].model_fields[field].annotation)
    any_will_do = not any(values) or {*values} == {*possible}
    return backend if any_will_do else f"{backend} with {field}: {' or '.join(values)}"
