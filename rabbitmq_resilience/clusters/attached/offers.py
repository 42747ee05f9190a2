"""What a cluster file can offer: by what faults act on brokers that are not ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from rabbitmq_resilience.clusters.spec import Spec


def _log(text: str) -> str:
    try:
        fields = {(name, form, conversion) for _, name, form, conversion in Formatter().parse(text) if name is not None}
    except ValueError:  # a brace that is not closed
        fields = {("", "", None)}
    if not fields <= {("node", "", None), ("host", "", None)}:
        raise ValueError("may have {node} (the Erlang name) and {host} (behind its @) in it, and no other braces")
    return text


Command = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]


class Service(Spec):
    """How the broker of a machine is started and stopped: as a unit of systemd, or by commands of the machine's shell,
    of which ``start`` must leave it running when it returns or soon after."""

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
    """Machines that are reached by ssh, each by its ``addresses`` entry or by the host in its node's name. ``user`` may
    be root, or one who may do everything by ``sudo`` without a password. ``key`` is the file of a private key; without
    it an agent is asked. A host must be in ``known_hosts`` (default: those of this user), whatever else is stated.
    ``config``: a file as of ssh_config(5) that says how hosts are reached, such as by a ProxyJump; without it none is
    read, neither that of this user. ``disk``: a folder of the broker's user on the file system where it stores, which
    may be filled."""

    user: Annotated[str, StringConstraints(pattern=r"^[\w.\-]+$")] = "root"
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    addresses: Mapping[str, Annotated[str, StringConstraints(pattern=r"^[^@/\s]+$")]] = {}
    key: Path | None = None
    known_hosts: Path | None = None
    config: Path | None = None
    sudo: bool = False
    broker: Service = Service(unit="rabbitmq-server")
    #: With {node} for the Erlang name, {host} for the part behind the @.
    log: Annotated[str, StringConstraints(pattern=r"^/"), AfterValidator(_log)] = "/var/log/rabbitmq/{node}.log"
    cut: Literal["all_ports", "distribution"] = "all_ports"
    disk: Annotated[str, StringConstraints(pattern=r"^/[^\n]*$")] | None = None

    def host_of(self, node: str) -> str:
        """Where the machine of the node of that Erlang name is."""
        return self.addresses.get(node, node.partition("@")[2])

    def log_of(self, node: str) -> str:
        """Where the node of that Erlang name logs."""
        return self.log.format(node=node, host=node.partition("@")[2])


#: How what a command has done ends, for people.
ENDS: Mapping[str, str] = {
    "heal": "healed by your command from this machine, which must be awake and have its way there",
    "policy": "deleted from this machine, which must be awake and have its way there",
    "chaos_mesh": "ends after its duration, as long as Chaos Mesh is at work",
    "uncordon": "nothing ends it there: uncordoned from this machine, which must be awake and have its way there",
    "rollout": "ends once Kubernetes has restarted the last of them, which nobody holds up",
    "emptied": "does not heal: what was stored is gone for good, and the broker comes back with an empty claim",
    "restarted": "Kubernetes starts it again",
    "itself": "ends by itself, as you state; nobody else ends it",
    "never": "does not end: what it has done is left to you",
}


class CommandedAct(Spec):
    """What is done to a broker by the user's own command ``do``. ``proof`` ends with status 0 while it is in effect,
    and with another one otherwise. It ends by the command ``heal``, which may be run twice; by itself after FOR_S
    seconds, wherever it was done (``ends: itself``); or never, as far as we are concerned (``ends: never``)."""

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
    """The user's own commands, run by a shell of this machine with NODE (the Erlang name), HOST (behind its @), ZONE
    and FOR_S in their environment. ``process`` prints what names the broker's process, another one after each start,
    and nothing while there is none. ``cut`` is about what NODE receives from PEER, with PEER_HOST beside them."""

    process: Command
    kill: CommandedAct | None = None
    stop: CommandedAct | None = None
    pause: CommandedAct | None = None
    cut: CommandedAct | None = None

    def act(self, name: str) -> CommandedAct | None:
        found: CommandedAct | None = getattr(self, name, None)
        return found


class Kubernetes(Spec):
    """Brokers in pods, each called as the first label of its node's host, or as in ``pods``. ``kubeconfig`` and
    ``context``: by default what kubectl takes, or the account of the pod in which this runs.

    Kubernetes starts brokers again by itself: ``kill`` and ``stop`` say whether their container ends (SIGKILL to the
    broker, SIGTERM to the container) or their pod is deleted (without its grace, and with it). For all but deleting,
    an ephemeral container is put beside the broker, of ``image``: one with sh, bash, ss, and nft or iptables, by
    default the broker's own. It stays in the pod's list until the pod is gone. ``cut_by`` says what acts on packets in
    place of rules from there: a NetworkPolicy, which needs a network that enforces such policies, or a NetworkChaos of
    Chaos Mesh.

    ``drain_node``: which pods are evicted where a node of Kubernetes is drained, those of this cluster's brokers or
    all; nothing of it heals there. ``lose_data: claim``: a broker's claims are deleted with its pod.
    ``restart_all``: whether the StatefulSet is told to restart its pods, or the Cluster Operator to have it do so.
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

    def can(self, act: str) -> bool:
        """Whether it states what ``act`` needs."""
        return act not in _STATED or _STATED[act][1](self)

    def ends(self, act: str) -> str:
        """How ``act`` ends, as a key of ``ENDS``; empty where a watchdog beside the broker ends it."""
        return _ENDED_BY.get(self.cut_by, "") if act in PACKETS else _ENDED_BY.get(act, "")

    def pod_of(self, node: str) -> str:
        """Of the node of that Erlang name."""
        return self.pods.get(node, node.partition("@")[2].partition(".")[0])


#: What is done to packets between brokers.
PACKETS = frozenset({"cut", "refuse", "lose_packets", "delay"})

#: What a cluster file must state of Kubernetes for some acts, and whether it does.
_STATED: Mapping[str, tuple[str, Callable[[Kubernetes], bool]]] = {
    "refuse": ("cut_by: rules", lambda offer: offer.cut_by == "rules"),
    "lose_packets": ("cut_by: rules or chaos_mesh", lambda offer: offer.cut_by != "network_policy"),
    "delay": ("cut_by: chaos_mesh", lambda offer: offer.cut_by == "chaos_mesh"),
    "drain_node": ("drain_node: brokers or all", lambda offer: offer.drain_node is not None),
    "lose_data": ("lose_data: claim", lambda offer: offer.lose_data is not None),
}
_ENDED_BY: Mapping[str, str] = {
    "network_policy": "policy",
    "chaos_mesh": "chaos_mesh",
    "kill": "restarted",
    "stop": "restarted",
    "drain_node": "uncordon",
    "restart_all": "rollout",
    "lose_data": "emptied",
}


def would(way: str, act: str) -> str:
    """``way``, with what a cluster file must state of it for ``act``."""
    return f"{way} with {_STATED[act][0]}" if way == "kubernetes" and act in _STATED else way


class Offers(Spec):
    """By what faults act on brokers; with nothing of it, on links of our own clients only."""

    ssh: Ssh | None = None
    commands: Commands | None = None
    kubernetes: Kubernetes | None = None

    @property
    def way(self) -> str:
        """The one that is offered; empty where none is."""
        return "".join(self._offered)

    @property
    def _offered(self) -> list[str]:
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self._offered) > 1:
            raise ValueError(f"has one way, and not {' and '.join(self._offered)}")
        return self
