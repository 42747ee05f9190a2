"""``rabbitmq-resilience cluster FILE`` tells what was found of a cluster that is there already, and
``rabbitmq-resilience heal FILE`` heals what a run has left there. Neither starts a load."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from packaging.version import Version

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.attaching import Found, look_at
from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster, load
from rabbitmq_resilience.clusters.attached.healing import healed
from rabbitmq_resilience.clusters.attached.identity import strangers
from rabbitmq_resilience.clusters.attached.lacking import lacking
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError
from rabbitmq_resilience.clusters.attached.offers import ENDS
from rabbitmq_resilience.clusters.attached.permits import OFFERED_BY, refusal
from rabbitmq_resilience.clusters.attached.settings import contrary
from rabbitmq_resilience.clusters.attached.spec import ACTS
from rabbitmq_resilience.clusters.attached.ways import Ways, client_module, reached
from rabbitmq_resilience.clusters.broker.management import ManagementApi
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.yaml_files import FileRefusedError


def told(arguments: Sequence[str]) -> int:
    """Returns 1 where the cluster is not as the file says, or a way that it offers does not work."""
    try:
        with reached(load(Path(arguments[0]))) as known:
            return _told(known)
    except (FileRefusedError, ClusterError) as error:
        print(error, file=sys.stderr)
        return 1


def _told(known: KnownCluster) -> int:
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
    with Ways.of(known) as ways:
        troubles = list(_machines(known, ways))
        if not troubles:
            troubles = [*ways.contrary(), *contrary(known.stated, ways.machines), *_strangers(known, ways)]
            troubles += [f"{act}: {text}" for act, text in _lacking(known, ways, found)]
    print("what may be done to it:")
    for act, meaning in ACTS.items():
        why, allowed = refusal(known.stated, act, 1), known.stated.allow.get(act)
        nodes = f"{allowed} node{'s' if allowed != 1 else ''}"
        at_once = f"at {nodes} at once{_ends(known, act)}" if not why else f"no: {why}"
        if act in OFFERED_BY:
            print(f"  {act:12} {meaning}: {at_once}")
    never = [act for act in ACTS if act not in OFFERED_BY]
    print(f"  never done to a cluster that is there already: {', '.join(never)}")
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    return 1 if troubles else 0


def _ends(known: KnownCluster, act: str) -> str:
    """How it does, where that is not by a watchdog beside the broker."""
    kubernetes = known.stated.offers.kubernetes
    how = "" if kubernetes is None or "api" in OFFERED_BY[act] else kubernetes.ends(act)
    return f"; {ENDS[how]}" if how else ""


def heal(arguments: Sequence[str]) -> int:
    """Returns 1 where something was not seen to be healed, or a run has the cluster. What nobody reaches heals by
    itself, some time later."""
    try:
        known = load(Path(arguments[0]))
    except FileRefusedError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        with Ways.of(known) as ways:
            return 0 if healed(known, ways) else 1
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1


def _machines(known: KnownCluster, ways: Ways) -> Iterator[str]:
    """Prints what was found of each machine; what does not work is yielded."""
    yield from _commanded(known, ways)
    if known.stated.offers.kubernetes is not None:
        yield from _in_pods(known, ways)
        return
    for name, machine in ways.machines.items():
        try:
            process = ways.brokers[name].process()
            tool, ahead_s = ways.rules[name].tool, _clock_ahead_s(machine)
            left, room = watchdog.armed(machine), _room(ways, name)
        except MachineError as error:
            yield f"{name}: {error}"
            continue
        broker = "no process of its broker" if process is None else f"its broker is {process.name}"
        rules = f"packets by {tool}" if tool else "neither nft nor iptables"
        print(f"  {name} by {machine.told}: {broker}, {rules}, clock {ahead_s:+.2f} s from ours{room}")
        if process is None:
            yield f"{name}: it answers, and no process of a broker was found on {machine.told}: is it that machine?"
        if left:
            yield f"{name}: not healed: {', '.join(left)}; `rabbitmq-resilience heal {known.path}` does it"


def _strangers(known: KnownCluster, ways: Ways) -> Iterator[str]:
    """Which brokers answer and are not those that would be acted on, or nobody knows. Raises MachineError."""
    with ExitStack() as stack:
        apis = {
            node.name: stack.enter_context(ManagementApi(node.management, access=known.access))
            for node in known.stated.nodes
        }
        yield from strangers(apis, ways.machines, ways.brokers)


def _room(ways: Ways, name: str) -> str:
    """Of the disk that is offered, if one is. Raises MachineError."""
    disk = ways.disks.get(name)
    if disk is None:
        return ""
    room = disk.room()
    shared = ", which the whole machine has" if room.mounted_at == "/" else ""
    free = f"{room.free_bytes / 10**6:,.0f} of {room.all_bytes / 10**6:,.0f} MB"
    return f", {free} of its disk are free ({disk.path}, mounted at {room.mounted_at}{shared})"


def _lacking(known: KnownCluster, ways: Ways, found: Found) -> Iterator[tuple[str, str]]:
    """What machines lack for the acts that are allowed."""
    for act in sorted(known.stated.allow):
        if not refusal(known.stated, act, 1):
            yield from ((act, text) for text in lacking(act, known.stated, ways, found.folders))


def _in_pods(known: KnownCluster, ways: Ways) -> Iterator[str]:
    """The same of brokers in pods. Nothing is put beside them for it."""
    try:
        for text, is_trouble in client_module("rights").seen(known):
            if is_trouble:
                yield text
            else:
                print(f"  {text}")
    except MachineError as error:
        yield str(error)
    yield from _left(known, ways)


def _left(known: KnownCluster, ways: Ways) -> Iterator[str]:
    for name, machine in ways.keepers.items():
        try:
            left = watchdog.armed(machine)
        except MachineError as error:
            yield f"{name}: what is not healed cannot be told: {error}"
            continue
        if left:
            yield f"{name}: not healed: {', '.join(left)}; `rabbitmq-resilience heal {known.path}` does it"


def _commanded(known: KnownCluster, ways: Ways) -> Iterator[str]:
    """The same of brokers that are reached by commands."""
    commands = known.stated.offers.commands
    if commands is None:
        return
    for name, broker in ways.brokers.items():
        try:
            process = broker.process()
        except MachineError as error:
            yield f"{name}: {error}"
            continue
        if process is None:
            yield f"{name}: it answers, and the command of process: tells of none"
        else:
            print(f"  {name} by your commands: its broker is {process.name}")
    acts = {name: commands.act(name) for name in ACTS}
    for name, act in acts.items():
        if act is not None:
            print(f"  {name}: {ENDS[act.ends]}")
    yield from _left(known, ways)


def _clock_ahead_s(machine: Machine) -> float:
    """Of the machine's wall clock, give or take half of what the question took."""
    before_s = time.time()
    theirs_s = float(machine.run("date +%s.%N"))
    return theirs_s - (before_s + time.time()) / 2
