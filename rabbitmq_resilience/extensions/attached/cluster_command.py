"""Run the commands ``cluster`` and ``heal``.

``rabbitmq-resilience cluster FILE`` shows what was found of an existing cluster. ``rabbitmq-resilience heal FILE``
heals what a run has left there. Neither starts a load.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from packaging.version import Version

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.attaching import FoundCluster, look_at
from rabbitmq_resilience.extensions.attached.broker_settings import contrary
from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster, load
from rabbitmq_resilience.extensions.attached.fault_budget import FaultBudget
from rabbitmq_resilience.extensions.attached.healing import healed
from rabbitmq_resilience.extensions.attached.identity import strangers
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.missing_tools import lacking
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackend, NodeBackends, client_module, reached
from rabbitmq_resilience.model.actions import ACTIONS, HEALING_TEXT, Action
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.yaml_files import FileRefusedError
from rabbitmq_resilience.sut.broker.management import ManagementApi


def describe(arguments: Sequence[str]) -> int:
    """Print what was found of the cluster, and what may be done to it.

    Return 1 if the cluster is not as the file says, or if a way that it offers does not work.
    """
    try:
        with reached(load(Path(arguments[0]))) as known:
            return _describe(known)
    except (FileRefusedError, ClusterError) as error:
        print(error, file=sys.stderr)
        return 1


def _describe(known: KnownCluster) -> int:
    found = look_at(known)
    versions = sorted(set(found.versions.values()), key=Version)
    print(f"{found.name}: RabbitMQ {' and '.join(versions)}, {len(found.versions)} nodes")
    zones: dict[str, list[str]] = defaultdict(list)
    for node in known.stated.nodes:
        of = f" ({found.versions[node.name]})" if len(versions) > 1 else ""
        zones[node.zone].append(f"{node.name}{of}")
    if len(versions) > 1:
        print(f"  brokers of several versions: scenarios are chosen and judged by the lowest, {found.version}")
    for zone, names in zones.items():
        print(f"  zone {zone}: {', '.join(names)}")
    with NodeBackends.of(known) as backends:
        troubles = list(_machines(known, backends))
        if not troubles:
            troubles = [
                *backends.config_mismatch(),
                *contrary(known.stated, backends.machines),
                *_strangers(known, backends),
            ]
            troubles += [f"{act}: {text}" for act, text in _lacking(known, backends, found)]
    print("what may be done to it:")
    for verb, action in ACTIONS.items():
        why, allowed = FaultBudget(known.stated).refusal(verb, 1), known.stated.allow.get(verb)
        nodes = f"{allowed} node{'s' if allowed != 1 else ''}"
        at_once = f"at {nodes} at once{_ends(known, action)}" if not why else f"no: {why}"
        if action.ways:
            print(f"  {verb:12} {action.text}: {at_once}")
    never = [verb for verb, action in ACTIONS.items() if not action.ways]
    print(f"  never done to an existing cluster: {', '.join(never)}")
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    return 1 if troubles else 0


def _ends(known: KnownCluster, action: Action) -> str:
    """Return how the action ends in Kubernetes, in words; empty if a watchdog at the broker ends it."""
    offers = known.stated.offers
    text = "" if offers.kubernetes is None else HEALING_TEXT.get(offers.ends(action), "")
    return f"; {text}" if text else ""


def heal(arguments: Sequence[str]) -> int:
    """Heal what runs have left.

    Return 1 if something was not seen to be healed, or if a run has the cluster. Faults on a machine that cannot be
    reached are healed by its watchdog some time later.
    """
    try:
        known = load(Path(arguments[0]))
    except FileRefusedError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        with NodeBackends.of(known) as backends:
            return 0 if healed(known, backends) else 1
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1


def _machines(known: KnownCluster, backends: NodeBackends) -> Iterator[str]:
    """Print what was found of each machine, and yield what does not work."""
    yield from _commanded(known, backends)
    if known.stated.offers.kubernetes is not None:
        yield from _in_pods(known, backends)
        return
    for name, node in backends.nodes.items():
        machine = node.machine
        if machine is None or node.rules is None:
            continue
        try:
            process = node.broker.process()
            tool, ahead_s = node.rules.tool, _clock_ahead_s(machine)
            left, room = watchdog.armed(machine), _room(node)
        except MachineError as error:
            yield f"{name}: {error}"
            continue
        broker = "no process of its broker" if process is None else f"its broker is {process.name}"
        rules = f"packets by {tool}" if tool else "neither nft nor iptables"
        print(f"  {name} by {machine.description}: {broker}, {rules}, clock {ahead_s:+.2f} s from ours{room}")
        if process is None:
            yield (
                f"{name}: its broker answers, but no process of it was found on {machine.description}: is this the "
                "right machine?"
            )
        if left:
            yield f"{name}: not healed: {', '.join(left)}; `rabbitmq-resilience heal {known.path}` does it"


def _strangers(known: KnownCluster, backends: NodeBackends) -> Iterator[str]:
    """Yield, in words, the brokers that answer and are not, or may not be, those that would be acted on.

    Raise MachineError if a machine cannot be asked.
    """
    with ExitStack() as stack:
        apis = {
            node.name: stack.enter_context(ManagementApi(node.management, access=known.access))
            for node in known.stated.nodes
        }
        yield from strangers(apis, backends.machines, backends.brokers)


def _room(node: NodeBackend) -> str:
    """Return, in words, the room on the offered disk; empty if none is offered. Raise MachineError if it is unknown."""
    disk = node.disk
    if disk is None:
        return ""
    room = disk.room()
    shared = ", which the whole machine has" if room.mounted_at == "/" else ""
    free = f"{room.free_bytes / 10**6:,.0f} of {room.all_bytes / 10**6:,.0f} MB"
    return f", {free} of its disk are free ({disk.path}, mounted at {room.mounted_at}{shared})"


def _lacking(known: KnownCluster, backends: NodeBackends, found: FoundCluster) -> Iterator[tuple[str, str]]:
    """Yield what machines lack for the acts that are allowed, as (act, text)."""
    for act in sorted(known.stated.allow):
        if not FaultBudget(known.stated).refusal(act, 1):
            yield from ((act, text) for text in lacking(act, known.stated, backends, found.folders))


def _in_pods(known: KnownCluster, backends: NodeBackends) -> Iterator[str]:
    """Print what was found of brokers in pods, and yield what does not work. No container is added to their pods."""
    try:
        for text, is_trouble in client_module("rights").seen(known):
            if is_trouble:
                yield text
            else:
                print(f"  {text}")
    except MachineError as error:
        yield str(error)
    yield from _left(known, backends)


def _left(known: KnownCluster, backends: NodeBackends) -> Iterator[str]:
    for name, machine in backends.keepers.items():
        try:
            left = watchdog.armed(machine)
        except MachineError as error:
            yield f"{name}: it is unknown what is not healed: {error}"
            continue
        if left:
            yield f"{name}: not healed: {', '.join(left)}; `rabbitmq-resilience heal {known.path}` does it"


def _commanded(known: KnownCluster, backends: NodeBackends) -> Iterator[str]:
    """Print what was found of brokers that are reached by commands, and yield what does not work."""
    commands = known.stated.offers.commands
    if commands is None:
        return
    for name, broker in backends.brokers.items():
        try:
            process = broker.process()
        except MachineError as error:
            yield f"{name}: {error}"
            continue
        if process is None:
            yield f"{name}: its broker answers, but the command of process: shows no process"
        else:
            print(f"  {name} by your commands: its broker is {process.name}")
    acts = {name: commands.act(name) for name in ACTIONS}
    for name, act in acts.items():
        if act is not None:
            print(f"  {name}: {HEALING_TEXT[act.ends]}")
    yield from _left(known, backends)


def _clock_ahead_s(machine: Machine) -> float:
    """Return how far the machine's wall clock is ahead of ours, to within half the time of the request."""
    before_s = time.time()
    theirs_s = float(machine.run("date +%s.%N"))
    return theirs_s - (before_s + time.time()) / 2
