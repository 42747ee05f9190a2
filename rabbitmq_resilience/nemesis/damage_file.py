"""A file of a broker is damaged while the broker is down: bits flip, its end is gone, or it is an old copy."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver, possible_nodes
from rabbitmq_resilience.sut.node_protocol import StoredData
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

Kind = Literal["segment", "write_ahead_log", "snapshot", "message_store", "queue_index"]
How = Literal["flip_bits", "cut_tail", "old_copy"]

#: Where brokers from 3.10 to 4.3 keep each kind, below their folder of data.
PATTERNS: Mapping[Kind, str] = {
    "segment": "**/quorum/**/*.segment",
    "write_ahead_log": "**/quorum/**/*.wal",
    "snapshot": "**/quorum/**/snapshots/*/*",
    "message_store": "**/msg_store_persistent/*.rdq",
    "queue_index": "**/queues/*/*",
}
#: The endings of an index, of both versions; the folder has other files, too.
_OF_INDEX = frozenset({".idx", ".jif", ".qi"})
#: The kinds that classic queues have, mirrored or not; the others are those of quorum queues.
OF_CLASSIC: frozenset[Kind] = frozenset({"message_store", "queue_index"})
#: How long the files may take to change after they were copied.
CHANGED_WITHIN_S = 20.0


class DamageFile(ProcessStep):
    """SIGKILL; then a file of each node is damaged, and healing starts the node. ``file`` is a kind of file, of which
    the one that was written last is damaged: a ``segment``, ``write_ahead_log`` or ``snapshot`` of quorum queues, or a
    file of the ``message_store`` or ``queue_index`` of classic ones.

    ``flip_bits``: in ``places`` bytes that the seed chooses, one bit each. ``cut_tail``: the last ``tail_bytes`` are
    gone, or half of a file that is shorter than twice that. ``old_copy``: the files are copied; as soon as one of them
    has changed, the node is killed, and that file is replaced by its copy.

    In a quorum queue nothing that was confirmed may be lost if a message that was sent after the kill is confirmed
    before the node starts again: then a majority without this node has all that came before, unless a file of another
    member was damaged earlier. Otherwise, and in classic queues, losses of messages that were sent before the node was
    up again are reported and permitted. A file of quorum queues permits no loss in classic ones, and the
    reverse.
    """

    fault: Literal["damage_file"] = "damage_file"
    file: Kind
    how: How = "flip_bits"
    places: Annotated[int, Field(ge=1, le=1000)] = 8
    tail_bytes: Annotated[int, Field(ge=1)] = 4096

    acts_on: ClassVar[str] = "data"
    example: ClassVar[str] = 'node: "leader:q1", file: write_ahead_log, how: cut_tail'
    take: ClassVar[str] = "kill"
    begins_within_s: ClassVar[float] = CHANGED_WITHIN_S

    def footprint(self, topology: Topology) -> Footprint:
        return replace(super().footprint(topology), files=frozenset(possible_nodes(self.node, topology)))

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DamageFileInjection:  # noqa: ARG002 - one form for all
        """Return the injection for the nodes that ``node`` means now."""
        nodes, cluster = resolver.nodes(self.node), context.cluster
        data = {node: offered(cluster, StoredData).data_folder(node) for node in nodes}
        return DamageFileInjection(context, nodes, cluster.kill, cluster.start, "gone", self, data, resolver.random)


@dataclass
class DamageFileInjection(ProcessInjection):
    """Brokers that are down while one of their files is damaged. It is proven by the file's digests before and after
    the damage."""

    stated: DamageFile
    data: Mapping[str, Path]
    chance: Random
    _damage: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        of_type = "classic" if self.stated.file in OF_CLASSIC else "quorum"
        return Effect(nodes_down=self.nodes, nodes_damaged=self.nodes, type_damaged=of_type)

    def take_all(self) -> None:
        """Kill the nodes, and damage a file of each. Raise ``ClusterError`` if there is none of that kind."""
        copies = {node: self._copied(node) for node in self.nodes} if self.stated.how == "old_copy" else {}
        super().take_all()
        for node, folder in self.data.items():
            file = newest(folder, self.stated.file) if node not in copies else newest_changed(folder, copies[node])
            if file is None:
                which = "of the kind" if node not in copies else "that was copied, has changed since and is of the kind"
                raise ClusterError(f"{node} has no file {which} {self.stated.file} ({PATTERNS[self.stated.file]})")
            before, size_bytes = _digest(file), file.stat().st_size
            if self.stated.how == "old_copy":
                shutil.copy(copies[node] / file.relative_to(folder), file)
            else:
                file.write_bytes(damaged(file.read_bytes(), self.stated, self.chance))
            offered(self.context.cluster, StoredData).settle(node)  # otherwise a later power cut undoes the damage
            after = _digest(file)
            if before == after:
                raise ClusterError(f"{file.relative_to(folder)} of {node} is as before")
            self._damage[node] = (
                f"{file.relative_to(folder)} of {node} had {size_bytes:,} bytes with SHA-256 {before[:12]}, and has "
                f"{file.stat().st_size:,} with {after[:12]}"
            )

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that the processes are gone, with the digests of each file."""
        damaged = Proof(len(self._damage) == len(self.nodes), "; ".join(self._damage.values()))
        return Proof.of_all(super().prove(timeout_s=timeout_s), damaged)

    def _copied(self, node: str) -> Path:
        """Copy the files of the kind, and wait until one differs from its copy. Return the copies' folder."""
        folder = self.data[node]
        copies = folder.parent / "copies"
        shutil.rmtree(copies, ignore_errors=True)
        for file in files_of(folder, self.stated.file):
            copy = copies / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
        try:
            wait_until(
                lambda: newest_changed(folder, copies) is not None,
                timeout_s=CHANGED_WITHIN_S,
                poll_s=0.5,
                what=f"a {self.stated.file} to change",
            )
        except WaitTimeout as error:
            raise ClusterError(str(error)) from error
        return copies


def files_of(folder: Path, kind: Kind) -> list[Path]:
    """Return the files of that kind that are not empty, the one that was written last at the end."""
    found = []
    for file in folder.glob(PATTERNS[kind]):
        try:
            state = file.stat()
        except FileNotFoundError:  # the broker has just removed it
            continue
        if kind == "queue_index" and file.suffix not in _OF_INDEX:
            continue
        if file.is_file() and state.st_size:
            found.append((state.st_mtime_ns, file))
    return [file for _, file in sorted(found)]


def newest(folder: Path, kind: Kind) -> Path | None:
    """Return the file of that kind that was written last; None if there is none."""
    return next(reversed(files_of(folder, kind)), None)


def newest_changed(folder: Path, copies: Path) -> Path | None:
    """Return the file that was written last of those that differ from their copy; None if there is none."""
    changed = []
    for copy in filter(Path.is_file, copies.rglob("*")):
        file = folder / copy.relative_to(copies)
        try:
            if _digest(file) != _digest(copy):
                changed.append((file.stat().st_mtime_ns, file))
        except FileNotFoundError:  # the broker has removed it
            continue
    return max(changed, default=(0, None))[1]


def damaged(content: bytes, stated: DamageFile, chance: Random) -> bytes:
    """Return the content with flipped bits, or without its tail, as the step states."""
    if stated.how == "cut_tail":
        return content[: len(content) - min(stated.tail_bytes, (len(content) + 1) // 2)]
    flipped = bytearray(content)
    for place in chance.sample(range(len(content)), min(stated.places, len(content))):
        flipped[place] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
