"""List all actions on the brokers of a cluster that runs already: one table, which all decisions about them follow.

``ACTIONS`` has each action by its verb. What a cluster file offers and allows, what is refused, what machines must
have, which rights are asked for, what a dry run lists, and how an action is healed are fields here or follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: The prefix of a verb among the needs of a scenario.
ACT = "act "

#: A way to brokers; "api" is the management API, which every cluster file has.
BackendName = Literal["ssh", "commands", "kubernetes", "api"]
#: What is acted on. It decides how an action is undone, and what is observed once it is.
ActedOn = Literal["process", "packets", "disk", "settings", "leaders", "machine"]
#: What a machine that is reached by ssh must have; "": nothing but its shell.
MachineNeed = Literal["", "service", "packet_rules", "delays", "disk", "tools"]
#: A verb, a resource and a subresource of Kubernetes.
Right = tuple[str, str, str]

#: How an action ends, for people. A "watchdog" at the broker ends it at a time that the plan shows.
Ends = Literal[
    "watchdog",
    "heal",
    "policy",
    "chaos_mesh",
    "uncordon",
    "rollout",
    "emptied",
    "restarted",
    "itself",
    "never",
    "at_once",
]
HEALING_TEXT: Mapping[str, str] = {
    "heal": "healed by your command from this machine, which must be awake and connected",
    "policy": "the policy is deleted from this machine, which must be awake and connected",
    "chaos_mesh": "ends after its duration, if Chaos Mesh works then",
    "uncordon": "nothing there ends it: uncordoned from this machine, which must be awake and connected",
    "rollout": "ends once Kubernetes has restarted the last broker; nothing stops it before",
    "emptied": "does not heal: the stored data is gone for good, and the broker comes back with an empty claim",
    "restarted": "Kubernetes starts the broker again",
    "itself": "ends by itself, as you state; nothing else ends it",
    "never": "does not end: you have to heal it",
}
#: The ends that come even if this suite, and the machine that it runs on, are gone.
_ENDS_ALONE: frozenset[Ends] = frozenset({"watchdog", "restarted", "at_once"})


@dataclass(frozen=True)
class Stated:
    """What a cluster file must state of a backend: in ``field`` one of ``values``, or anything if there are none.

    ``example``: a value to write, for people, if there are no ``values``.
    """

    field: str
    values: tuple[str, ...] = ()
    example: str = ""

    def fits(self, offer: object) -> bool:
        """Return whether ``offer``, the backend's part of a cluster file, states that."""
        value = getattr(offer, self.field, None)
        return value in self.values if self.values else value is not None


@dataclass(frozen=True)
class ActionWay:
    """One way to do an action: by a backend of which a cluster file states ``stated``.

    ``needs``, ``programs``: what is looked for on each machine before. ``rights``, ``cluster_rights``: what we must be
    permitted in the brokers' namespace, and in all of Kubernetes. ``takes_pod``: whether the broker's pod goes, whose
    data must stay. How a command ends is stated with it (``offers.CommandedAct``).
    """

    backend: BackendName
    stated: Stated | None = None
    ends: Ends = "watchdog"
    needs: MachineNeed = ""
    programs: tuple[str, ...] = ()
    rights: tuple[Right, ...] = ()
    cluster_rights: tuple[Right, ...] = ()
    takes_pod: bool = False

    @property
    def adds_container(self) -> bool:
        """Return whether a container that is added to the broker's pod does it."""
        return {*_EPHEMERAL} <= {*self.rights}

    def fits(self, offer: object) -> bool:
        """Return whether ``offer``, this backend's part of a cluster file, states what the way needs."""
        return self.stated is None or self.stated.fits(offer)


@dataclass(frozen=True)
class Action:
    """What may be done to brokers of others: ``verb`` is its word in ``allow:``, ``text`` says it to people.

    No action is allowed unless ``allow:`` names it. Without ``ways``, it is never done to an existing cluster.
    """

    verb: str
    text: str
    acts_on: ActedOn
    ways: tuple[ActionWay, ...] = ()
    #: Whether it takes the broker away, so that the broker must be given back.
    takes_broker: bool = False
    #: Whether the broker's process ends with it, and with the process all that was changed in it.
    ends_process: bool = False
    #: Whether it counts the nodes outside the largest group that stays whole.
    parts: bool = False
    #: Whether RabbitMQ's tools, or the broker, carry it out as soon as they can, so that its time counts from then.
    takes_its_time: bool = False
    #: At how many nodes at once the scenarios of ``faults/platforms`` do it, on three nodes in three zones.
    on_platforms: int = 0

    @property
    def backends(self) -> frozenset[BackendName]:
        """Return the backends by which the action can be done."""
        return frozenset(way.backend for way in self.ways)

    @property
    def ends_alone(self) -> bool:
        """Return whether the action, done in Kubernetes, can end without this suite."""
        there = (way for way in self.ways if way.backend in ("kubernetes", "api"))
        return any(way.ends in _ENDS_ALONE for way in there)


def _verbs(resource: str, *verbs: str, sub: str = "") -> tuple[Right, ...]:
    return tuple((verb, resource, sub) for verb in verbs)


def _cut_by(*values: str) -> Stated:
    return Stated("cut_by", values)


_EPHEMERAL = _verbs("pods", "patch", sub="ephemeralcontainers")
_DELETE_POD = _verbs("pods", "delete")
_EVICT = _verbs("pods", "create", sub="eviction")
_CORDON = _verbs("nodes", "get", "list", "patch")
_POLICIES = _verbs("networkpolicies", "create", "patch", "delete", "get", "list")
_CHAOS = (
    *_verbs("networkchaos", "create", "patch", "delete", "get", "list"),
    *_verbs("podnetworkchaos", "patch", "get"),
    *_EPHEMERAL,
)

_RULES = ActionWay("ssh", needs="packet_rules")
_RULES_IN_POD = ActionWay("kubernetes", _cut_by("rules"), rights=_EPHEMERAL)
_BY_CHAOS_MESH = ActionWay("kubernetes", _cut_by("chaos_mesh"), "chaos_mesh", rights=_CHAOS)


def _ending(verb: str) -> tuple[ActionWay, ...]:
    """Return the ways to end a broker's process, which Kubernetes starts again by itself."""
    return (
        ActionWay("ssh", needs="service"),
        ActionWay("commands", Stated(verb), "heal"),
        ActionWay("kubernetes", Stated(verb, ("container",)), "restarted", rights=_EPHEMERAL),
        ActionWay("kubernetes", Stated(verb, ("pod",)), "restarted", rights=_DELETE_POD, takes_pod=True),
    )


_ALL = (
    Action(
        "kill",
        "the broker's process is ended by SIGKILL and started again",
        "process",
        _ending("kill"),
        takes_broker=True,
        ends_process=True,
        on_platforms=1,
    ),
    Action(
        "stop",
        "the broker is shut down cleanly and started again",
        "process",
        _ending("stop"),
        takes_broker=True,
        ends_process=True,
        takes_its_time=True,
        on_platforms=1,
    ),
    Action(
        "pause",
        "the broker's process is suspended",
        "process",
        (ActionWay("ssh"), ActionWay("commands", Stated("pause"), "heal"), ActionWay("kubernetes", rights=_EPHEMERAL)),
        takes_broker=True,
        on_platforms=1,
    ),
    Action(
        "cut",
        "packets between brokers are dropped",
        "packets",
        (
            _RULES,
            ActionWay("commands", Stated("cut"), "heal"),
            _RULES_IN_POD,
            ActionWay("kubernetes", _cut_by("network_policy"), "policy", rights=_POLICIES),
            _BY_CHAOS_MESH,
        ),
        parts=True,
        on_platforms=1,
    ),
    Action(
        "refuse",
        "connections between brokers are reset and refused",
        "packets",
        (_RULES, _RULES_IN_POD),
        parts=True,
    ),
    Action(
        "lose_packets",
        "some of the packets between brokers are lost",
        "packets",
        (_RULES, _RULES_IN_POD, _BY_CHAOS_MESH),
        on_platforms=2,
    ),
    Action(
        "delay",
        "packets between brokers arrive later",
        "packets",
        (ActionWay("ssh", needs="delays"), _BY_CHAOS_MESH),
    ),
    Action("disturb", "packets between brokers are damaged, repeated, or wait for each other", "packets"),
    Action(
        "drain",
        "the broker is put into maintenance mode: all its clients and leaders go elsewhere",
        "settings",
        (ActionWay("ssh", needs="tools", programs=("rabbitmq-upgrade",)),),
        takes_its_time=True,
    ),
    Action(
        "alarm",
        "a limit of memory or disk is set so that the alarm goes off, which blocks all publishers of the cluster",
        "settings",
        (ActionWay("ssh", needs="tools", programs=("rabbitmqctl",)),),
        takes_its_time=True,
    ),
    Action(
        "fill_disk",
        "the broker's disk is filled to the last block, which blocks all publishers and may end the broker",
        "disk",
        (ActionWay("ssh", Stated("disk", example="/FOLDER"), needs="disk"),),
    ),
    Action(
        "rebalance",
        "leaders of all queues of the cluster are rebalanced",
        "leaders",
        (ActionWay("api", ends="at_once"),),
    ),
    Action("configure", "the broker gets other settings", "settings"),
    Action("enable_feature_flag", "a feature flag is enabled on all brokers, for good", "settings"),
    Action(
        "lose_data",
        "all that the broker has stored is removed",
        "process",
        (
            ActionWay(
                "kubernetes",
                Stated("lose_data", ("claim",)),
                "emptied",
                rights=(
                    *_verbs("statefulsets", "get"),
                    *_DELETE_POD,
                    *_verbs("persistentvolumeclaims", "get", "delete"),
                ),
            ),
        ),
        takes_broker=True,
    ),
    Action(
        "drain_node",
        "the machine accepts no new pods, and its brokers have to leave it; with drain_node: all, every pod",
        "machine",
        (
            ActionWay(
                "kubernetes",
                Stated("drain_node", ("brokers",)),
                "uncordon",
                rights=_EVICT,
                cluster_rights=_CORDON,
                takes_pod=True,
            ),
            ActionWay(
                "kubernetes",
                Stated("drain_node", ("all",)),
                "uncordon",
                cluster_rights=(*_CORDON, *_verbs("pods", "list", "get"), *_EVICT),
                takes_pod=True,
            ),
        ),
    ),
    Action(
        "restart_all",
        "all brokers are restarted, one after another",
        "machine",
        (
            ActionWay(
                "kubernetes",
                Stated("restart_all", ("statefulset",)),
                "rollout",
                rights=_verbs("statefulsets", "get", "patch"),
                takes_pod=True,
            ),
            ActionWay(
                "kubernetes",
                Stated("restart_all", ("operator",)),
                "rollout",
                rights=(*_verbs("statefulsets", "get"), *_verbs("rabbitmqclusters", "patch")),
                takes_pod=True,
            ),
        ),
    ),
)

#: All actions by their verbs. ``nemesis.footprint.Footprint.acts`` says which of them a fault does.
ACTIONS: Mapping[str, Action] = {action.verb: action for action in _ALL}


def backends_of(verb: str) -> frozenset[BackendName]:
    """Return the backends by which the action of that verb can be done; none if there is no such action."""
    return ACTIONS[verb].backends if verb in ACTIONS else frozenset()
