"""Power cuts, slow and failing disks, and damaged files: what nodes get for them, what is refused, and what is done."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.nemesis.damage_file import DamageFile, damaged, files_of, newest, newest_changed
from rabbitmq_resilience.nemesis.preloading import Canaries, Took, still_wrong
from rabbitmq_resilience.nemesis.slow_disk import SlowDiskInjection
from tests.clock import waits_by_clock
from tests.faults.written_steps import parsed, refused
from tests.messages import Messages

CUT = {"at_s": 2, "for_s": 9, "fault": "power_cut", "node": "zone:b"}
SLOW = {"at_s": 2, "for_s": 9, "fault": "slow_disk", "node": "b1", "flush_ms": 500}
ERRORS = {"at_s": 2, "for_s": 9, "fault": "disk_errors", "node": "leader:q1", "files": "*.wal"}
DAMAGE = {"at_s": 2, "for_s": 9, "fault": "damage_file", "node": "b1", "file": "segment"}


def test_only_nodes_that_a_step_may_mean_are_preloaded() -> None:
    assert parsed(CUT).equipment == NodeOptions(preloaded=frozenset({"b1"}))
    assert parsed(ERRORS).equipment.preloaded == {"a1", "b1", "c1"}
    assert parsed(DAMAGE).equipment == NodeOptions()
    assert parsed(CUT).needs == {"disk-faults"}
    assert parsed(DAMAGE, driver="local").needs == frozenset()


@pytest.mark.parametrize(
    ("step", "field"),
    [
        ({**CUT, "node": "z1"}, "node"),
        ({**CUT, "file_system": "btrfs"}, "file_system"),
        ({**SLOW, "flush_ms": 5}, "flush_ms"),
        ({**ERRORS, "one_in": 0}, "one_in"),
        ({**DAMAGE, "file": "log"}, "file"),
    ],
)
def test_refused_before_anything_starts(step: dict[str, Any], field: str, message: Messages) -> None:
    said = refused(step, driver="local")
    assert "schedule[0]" in said
    assert field in said
    message(said)


def test_a_cluster_of_others_is_left_alone(message: Messages) -> None:
    for step in (CUT, SLOW, ERRORS, DAMAGE):
        message(refused(step, driver="attached"))


def test_two_steps_on_one_disk_and_a_node_that_another_step_takes_are_refused(message: Messages) -> None:
    message(refused(SLOW, {**ERRORS, "at_s": 5, "node": "b1"}, driver="local"))
    message(refused(CUT, {"at_s": 5, "for_s": 2, "fault": "kill", "node": "b1"}, driver="local"))


@pytest.mark.parametrize("step", [CUT, SLOW, DAMAGE])
def test_files_on_a_disk_that_a_container_has_for_itself_are_out_of_reach(
    step: dict[str, Any], message: Messages
) -> None:
    full = {"at_s": 20, "for_s": 5, "fault": "disk_full", "node": "b1"}
    message(refused(full, {**step, "at_s": 40}))
    message(refused(step, full))
    assert parsed({**full, "node": "c1"}, step).equipment.disks.keys() == {"c1"}


def test_all_at_once_leave_no_majority_and_a_slow_disk_does() -> None:
    topology = parsed(CUT).topology
    assert not parsed({**CUT, "node": "all"}).schedule[0].footprint(topology).leaves_majority(topology)
    assert parsed(CUT).schedule[0].footprint(topology).leaves_majority(topology)
    assert parsed(SLOW).schedule[0].footprint(topology).leaves_majority(topology)


def stored(folder: Path, *names: str) -> list[Path]:
    """Write files in this order, each a second after the other, of 1,000 bytes."""
    files = [folder / name for name in names]
    for second, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([second]) * 1000)
        os.utime(file, (second, second))
    return files


def test_the_file_that_was_written_last_is_chosen(tmp_path: Path) -> None:
    quorum = "node/quorum/node"
    queue = [f"node/queues/q/{name}" for name in ("0.qi", "0.qs", ".queue_name")]
    stored(tmp_path, f"{quorum}/1.wal", f"{quorum}/u1/2.segment", f"{quorum}/u2/1.segment", *queue)
    assert [file.name for file in files_of(tmp_path, "segment")] == ["2.segment", "1.segment"]
    assert newest(tmp_path, "write_ahead_log") == tmp_path / quorum / "1.wal"
    assert newest(tmp_path, "message_store") is None
    assert newest(tmp_path, "queue_index") == tmp_path / "node/queues/q/0.qi"


def test_an_empty_file_is_not_chosen(tmp_path: Path) -> None:
    (empty,) = stored(tmp_path, "node/quorum/node/1.wal")
    empty.write_bytes(b"")
    assert newest(tmp_path, "write_ahead_log") is None


def test_an_old_copy_replaces_a_file_that_was_written_again(tmp_path: Path) -> None:
    """Neither one that is new, nor one that is as before or gone."""
    names = ["u1/1.segment", "u1/2.segment", "u2/1.segment", "u3/1.segment"]
    files, copies = stored(tmp_path / "data", *names), tmp_path / "copies"
    stored(copies, *names)
    assert newest_changed(tmp_path / "data", copies) is None
    stored(tmp_path / "data", "u3/2.segment")
    files[3].unlink()
    for second, file in ((30, files[0]), (20, files[1])):
        file.write_bytes(b"more")
        os.utime(file, (second, second))
    assert newest_changed(tmp_path / "data", copies) == files[0]


def chance() -> random.Random:
    return random.Random(2)  # noqa: S311 - a seeded choice, no secret


def step_of(**fields: Any) -> DamageFile:
    return DamageFile.model_validate({**DAMAGE, **fields})


def test_bits_flip_in_as_many_places_as_are_stated() -> None:
    before = bytes(range(250)) * 4
    after = damaged(before, step_of(places=8), chance())
    differing = [one ^ other for one, other in zip(before, after, strict=True) if one != other]
    assert len(differing) == 8
    assert all(bits.bit_count() == 1 for bits in differing)
    assert damaged(before, step_of(places=8), chance()) == after


@pytest.mark.parametrize(("size", "left"), [(10_000, 5904), (8192, 4096), (5000, 2500), (1, 0)])
def test_a_tail_is_cut_off_and_at_most_half(size: int, left: int) -> None:
    before = bytes(size)
    assert damaged(before, step_of(how="cut_tail"), chance()) == before[:left]


@pytest.mark.parametrize(
    ("before_ms", "took_ms", "slow", "healed"),
    [
        ((0.1, 2.0), (20.5, 1003.0), True, False),
        ((0.1, 30.0), (0.1, 31.0), False, True),
        ((0.1, 2.0), (0.1, 1500.0), False, False),
        ((0.1, 1200.0), (0.1, 1250.0), False, True),
    ],
    ids=["both", "neither", "one of them", "as slow by itself"],
)
def test_a_disk_is_slow_if_it_takes_longer_than_before(
    before_ms: tuple[float, float], took_ms: tuple[float, float], slow: bool, healed: bool
) -> None:
    step = SlowDiskInjection((), {}, write_ms=20, flush_ms=1000)
    delayed = [*step.delayed(Took(*before_ms), Took(*took_ms))]
    assert (all(delayed), not any(delayed)) == (slow, healed)


def test_each_step_writes_a_new_file_of_its_own() -> None:
    """That of an earlier step may have been written back since."""
    anything: Any = None
    assert Canaries(anything, "a1", anything).new != Canaries(anything, "a1", anything).new


def test_all_canaries_are_looked_at_until_each_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that cannot write yet hides neither itself nor those after it."""
    clock = waits_by_clock(monkeypatch)
    ready_s = {"a1": clock.now_s + 2, "b1": clock.now_s + 1, "c1": clock.now_s}

    def wrong(node: str) -> str:
        if node == "a1" and clock.now_s < ready_s[node]:
            raise ClusterError("a1 did not write its canaries")
        return "" if clock.now_s >= ready_s[node] else f"{node} is slow"

    assert still_wrong(ready_s, wrong, timeout_s=0, what="x") == ["a1 did not write its canaries", "b1 is slow"]
    assert still_wrong(ready_s, wrong, timeout_s=1, what="x") == ["a1 did not write its canaries"]
    assert still_wrong(ready_s, wrong, timeout_s=9, what="x") == []
    assert clock.now_s < ready_s["a1"] + 0.2
