"""The base of faults that act on the disk of a broker through a preloaded library, and the canaries that prove them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import node_problems, possible_nodes
from rabbitmq_resilience.sut.node_protocol import BrokerTools, StoredData
from rabbitmq_resilience.sut.preload.preloaded_disk import PreloadedDisk
from rabbitmq_resilience.workload.workload_base import WorkloadBase

_BEFORE, _AFTER = "before", "after!"
_FOLDER = "canaries"
#: The tool that writes them takes a second of a processor, and was seen to get it within 25 s on a busy machine.
_WRITTEN_WITHIN_S = 180.0

#: Writes three files in the folder {folder} as the broker does: one that is there is written and flushed, one that is
#: there is written and not flushed, and one is new. Returns how many microseconds a write and a flush took.
_WRITE = """\
Write = fun(Name, Flush) ->
    {{ok, File}} = file:open(filename:join({folder}, Name), [read, write, raw, binary]),
    {{Wrote, ok}} = timer:tc(fun() -> file:pwrite(File, 0, <<{text}>>) end),
    {{Flushed, ok}} = timer:tc(fun() -> Flush(File) end),
    ok = file:close(File),
    {{Wrote, Flushed}}
end,
Kept = Write("flushed", fun file:sync/1),
Write("unflushed", fun(_) -> ok end),
Write({new}, fun(_) -> ok end),
Kept."""


class PreloadedFault(ScheduledFault):
    """``node`` is a target, see ``nemesis.targets``; it may mean several nodes, all at the same moment. Before the
    cluster starts, a library is preloaded into each broker that ``node`` may mean."""

    node: str

    acts_on: ClassVar[str] = "data"
    #: The broker writes its canaries before, by one of its own tools.
    begins_within_s: ClassVar[float] = 30.0

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        return node_problems(self.node, topology, workload)

    def footprint(self, topology: Topology) -> Footprint:
        """Return the nodes, their disks, and the library that they must be started with."""
        nodes = possible_nodes(self.node, topology)
        return replace(
            super().footprint(topology),
            files=frozenset(nodes),
            resources=frozenset(f"the disk of {node}" for node in nodes),
            node_options=NodeOptions(preloaded=frozenset(nodes)),
            needs=frozenset({"disk-faults"}),
        )


def canaries_of(cluster: BrokerTools, nodes: Iterable[str]) -> dict[str, Canaries]:
    """Return {node: its canaries}."""
    stored = offered(cluster, StoredData)
    return {node: Canaries(cluster, node, stored.preloaded_disk(node)) for node in nodes}


def still_wrong(nodes: Iterable[str], wrong: Callable[[str], str], *, timeout_s: float, what: str) -> list[str]:
    """Ask ``wrong`` about all nodes until it returns an empty text for each. Return what it said last; a
    ``ClusterError`` counts as its text. ``what`` completes the sentence "waited n s for ..."."""

    def look() -> list[str]:
        found = []
        for node in nodes:
            try:
                found.append(wrong(node))
            except ClusterError as error:
                found.append(str(error))
        return [text for text in found if text]

    return left_over(look, timeout_s=timeout_s, what=what)


@dataclass(frozen=True)
class Took:
    """How long the broker's Erlang VM waited for a write of a few bytes, and for its flush."""

    write_ms: float
    flush_ms: float


@dataclass(frozen=True)
class Canaries:
    """Three small files of one broker among its data: written and flushed, written and not flushed, and new."""

    cluster: BrokerTools
    node: str
    disk: PreloadedDisk
    #: An earlier step's new file may have been written back since.
    new: str = field(default_factory=lambda: f"new-{uuid4().hex}")

    @property
    def folder(self) -> Path:
        return self.disk.data / _FOLDER

    def write(self) -> Took:
        """Create the two files that exist before, and let the broker write all three. Raise ``ClusterError`` if it does
        not, or if a call fails."""
        self.folder.mkdir(exist_ok=True)
        for name in ("flushed", "unflushed"):  # this process has no preloaded library, so they count as flushed
            (self.folder / name).write_text(_BEFORE)
        expression = _WRITE.format(folder=_erlang(str(self.folder)), new=_erlang(self.new), text=_erlang(_AFTER))
        said = self.cluster.run_tool(self.node, "rabbitmqctl", "eval", expression, timeout_s=_WRITTEN_WITHIN_S)
        times = re.fullmatch(r"\{(\d+),\s*(\d+)\}", said.strip())
        if times is None:
            raise ClusterError(f"{self.node} did not write its canaries: {said.strip()[:300]}")
        write_us, flush_us = map(int, times.groups())
        return Took(write_us / 1000, flush_us / 1000)

    def survivors(self) -> Mapping[str, bool]:
        """Return {kind: whether it has what ``write`` wrote}."""
        names = {"flushed": "flushed", "unflushed": "unflushed", "new": self.new}
        files = {kind: self.folder / name for kind, name in names.items()}
        return {name: file.exists() and file.read_text() == _AFTER for name, file in files.items()}


def _erlang(text: str) -> str:
    """Return the text as an Erlang string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
