"""Write a first fault file from evidence, with unknown facts marked FILL IN."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from packaging.version import Version

from rabbitmq_resilience.extensions.incidents.log_times import utc
from rabbitmq_resilience.extensions.incidents.node_names import NodeNames, layout
from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, Occurrence
from rabbitmq_resilience.model.topology import PRODUCTION_NET_TICKTIME_S
from rabbitmq_resilience.model.yaml_files import FILL_IN
from rabbitmq_resilience.tools.locations import OPTION

#: From this version on, nodes do not react to partitions: metadata is in Khepri.
HANDLES_NO_PARTITION = Version("4.3")
_WIDTH = 118
_PARTED = ("partition", "disconnect")
_OPEN_END = f"{FILL_IN}: for how many seconds; the evidence does not show when it ended"


def draft(evidence: Evidence, *, zones: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the text of a fault file.

    Where a fact is unknown and has a default, the text has the default, so that the file can be played. Without a
    default, the text has FILL IN there, and the file is refused until that is filled in.
    """
    placed = layout(evidence, zones or {})
    zero = min((occurrence.begin for occurrence in evidence.occurrences), default=0.0)
    return "\n".join(
        [*_head(evidence, zero), *_setting(evidence, placed), *_schedule(evidence, placed, zero), *_DEMANDS]
    )


_DEMANDS = ["invariants:", "  no_loss: {}", "  order: {}", "  availability: {}", "  recovery: {}", ""]


def _head(evidence: Evidence, zero: float) -> Iterator[str]:
    yield from _comment(f"Made by rabbitmq-resilience fault-file from {', '.join(evidence.sources)}.")
    yield f"# at_s: 0 is {utc(zero)}. {FILL_IN} marks what the evidence does not show."
    if evidence.versions:
        yield f"# The brokers were RabbitMQ {', '.join(evidence.versions)}."
    else:
        yield f"# {FILL_IN}: the version of the brokers, which no evidence has; {OPTION}broker VERSION plays one."
    for note in evidence.notes:
        yield from _comment(f"- {note}")
    yield "version: 1"
    yield f"title: Incident of {utc(zero)}  # {FILL_IN}: what went wrong, in a few words"


def _setting(evidence: Evidence, placed: NodeNames) -> Iterator[str]:
    yield "topology:"
    yield "  name: incident"
    yield f"  zones: {{{', '.join(f'{zone}: {size}' for zone, size in placed.sizes.items())}}}"
    if placed.is_guess:
        yield f"  # {FILL_IN}: zones are a guess; --zone NAME=NODE,NODE says which nodes share one"
    if placed.unseen:
        yield f"  # {FILL_IN}: there is no evidence of the nodes of zone {placed.unseen}"
    for node, name in placed.called.items():
        if name != node.split("@")[0]:
            yield f"  # {name} is {node}"
    if evidence.partition_handling:
        is_sure = evidence.partition_handling != "pause_minority"
        remark = "" if is_sure else "  # the logs fit this; those of pause_if_all_down look the same"
        yield f"  partition_handling: {evidence.partition_handling}{remark}"
    elif evidence.versions and all(Version(version) >= HANDLES_NO_PARTITION for version in evidence.versions):
        yield "  partition_handling: ignore  # RabbitMQ has none from 4.3 on"
    else:
        yield f"  partition_handling: ignore  # {FILL_IN}: this is RabbitMQ's default"
    known_s = evidence.net_ticktime_s
    mark = "" if known_s else f"  # {FILL_IN}: this is RabbitMQ's default, and beginnings of cuts are computed from it"
    yield f"  net_ticktime_s: {known_s or PRODUCTION_NET_TICKTIME_S:g}{mark}"
    kind = (evidence.queue_types or ("quorum",))[0]
    others = f", the logs have {' and '.join(evidence.queue_types)} queues" if evidence.queue_types else ""
    yield f"# {FILL_IN}: the load is a guess{others}."
    yield f"workload: {{queue_type: {kind}, queues: 3, publishers: 3, consumers: 3, rate_per_s: 500}}"
    yield "phases: {steady_s: 10, recovery_s: 120, drain_s: 60}"


def _schedule(evidence: Evidence, placed: NodeNames, zero: float) -> Iterator[str]:
    for at, sentence in evidence.seen:
        yield from _comment(f"seen at {at - zero:.1f} s: {sentence}")
    if not evidence.occurrences:
        yield f"schedule: []  # {FILL_IN}: no fault was recognised in the evidence"
        return
    yield "schedule:"
    for occurrence in evidence.occurrences:
        for note in occurrence.notes:
            yield from _comment(note, indent="  ")
        at_s = round(occurrence.begin - zero, 1)
        for_s = _OPEN_END if occurrence.end is None else max(0.1, round(occurrence.end - occurrence.begin, 1))
        for fields in _targets(occurrence, placed):
            step = {"at_s": at_s, "for_s": for_s, "fault": occurrence.fault, **fields, **occurrence.fields}
            written = ", ".join(f"{name}: {_value(value)}" for name, value in step.items())
            yield f"  - {{{written}}}"


def _targets(occurrence: Occurrence, placed: NodeNames) -> Iterator[Mapping[str, object]]:
    """Yield the fields that name the targets, one mapping for each step: some cuts and groups of nodes need several."""
    if occurrence.fault == "rebalance":
        yield {}
    elif occurrence.fault in _PARTED:
        yield from ({"between": list(sides)} for sides in _between(occurrence, placed))
    elif occurrence.fault == "latency":
        for target in placed.targets(occurrence.nodes):
            yield {"links": f"{target} <-> all"}
    else:
        for target in placed.targets(occurrence.nodes):
            yield {"node": target}


def _between(occurrence: Occurrence, placed: NodeNames) -> Iterator[tuple[str, ...]]:
    others = placed.called.keys() - occurrence.nodes
    sides = occurrence.sides if len(occurrence.sides) > 1 else (*occurrence.sides, others)
    everyone = set(placed.called)
    largest = (
        max(sides, key=len) if len(occurrence.sides) > 1 else others
    )  # with the nodes of which there is no evidence
    names = []
    for side in sides:
        rest = set().union(*(other for other in sides if other is not side))
        is_rest = side is largest and set(side) == everyone - rest and (len(side) > 1 or placed.unseen)
        names.append("rest" if is_rest else placed.target(side))
    if all(names):
        ordered = map(str, names)
        yield tuple(ordered if occurrence.fields.get("one_way") else sorted(ordered, key=lambda name: name == "rest"))
        return
    for one, other in combinations(sides, 2):  # no single target names these nodes: cut them one by one
        yield from ((a, b) for a in placed.targets(one) for b in placed.targets(other))


def _value(value: object) -> str:
    return json.dumps(value) if isinstance(value, str | list | bool) else str(value)


def _comment(text: str, *, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ")
