"""Brokers lose power, or their disks are slow, fail, or come back damaged, while messages are confirmed.

A confirm says that a broker has stored the message ("Consumer Acknowledgements and Publisher Confirms"). Quorum queues
flush their log before that. Classic queues flushed the message store up to 3.12, and write it only since 3.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.nemesis.conditions import AfterStep, NodeIs, When
from rabbitmq_resilience.nemesis.damage_file import DamageFile, Kind
from rabbitmq_resilience.nemesis.disk_errors import DiskErrors
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.power_cut import PowerCut
from rabbitmq_resilience.nemesis.slow_disk import SlowDisk
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.guarantees import promised, promising, versions
from rabbitmq_resilience.scenario.known_defects import OLDER_COPY_LEADS
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.sut.preload.preloaded_disk import FileSystem
from rabbitmq_resilience.workload.services import ProcessingStep
from suites.case_study import AWAY_S, FIRST_STEP_S, PHASES, RECOVERED_WITHIN_S
from suites.partitions import noticed_s, shape, workload
from suites.test_metadata import CREATED_IN_A_MINORITY

pytestmark = [pytest.mark.power, pytest.mark.slow]

Play = Callable[[Scenario], Result]

THREE = "three_nodes_three_zones"
SMALL_LOGS = "three_nodes_small_logs"
FIVE = "five_nodes_three_zones"
EVERY_TYPE = pytest.mark.parametrize("queue_type", ["quorum", "classic", "mirrored"])

#: A message of this size is stored apart from its queue's index (``queue_index_embed_msgs_below``, 4096 bytes).
STORED_APART_BYTES = 8192
#: What is in a queue when the power goes can be lost. So messages wait there until this long after the fault, as
#: consumers take so long for each.
HARDLY_READ_MS = 1000.0
READ_AFTER_S = 20.0
CUT_AT_S = 8.0
#: What is older is on the disk when the power goes, as Linux writes it back.
WRITTEN_BACK_S = 8.0
SLOW_FLUSH_MS = 1000.0
ON_EXT4 = ", on ext4"
#: The oldest version that the scenarios are for.
SINCE = "3.10"
#: File systems, whether parts of what was not flushed stay, and the title.
OTHER_DISKS: dict[tuple[FileSystem, bool], str] = {
    ("ext4", False): f"Every node loses power{ON_EXT4}",
    ("posix", False): "Every node loses power, and new names",
    ("ordered", True): "Every node loses power in the middle of a write",
}

#: Losses by design: classic queues from 3.13 on.
NOT_FLUSHED = Expectation(
    broker=">=3.13",
    verdict=Verdict.INVALID,
    invariant="no_loss",
    intermittent=True,
    queue_types=("classic",),
    trace="loses_with_power",
    documentation="From 3.13 on the message store of classic queues calls no fsync before a message is confirmed "
    "(rabbitmq-server#8507; rabbit_msg_store.erl, 3.13 to 4.3).",
)

#: A member of a new quorum queue does not flush the name of its configuration. Without that file it does not start
#: again, and the queue's messages are in a log that no member reads (4.0.5: 8 of 8 runs; 4.3.6: 0 of 9). ext4 keeps the
#: name at the next flush of any file.
CONFIGURATION_NOT_FLUSHED = Expectation(
    broker=">=4.0,<4.1",
    verdict=Verdict.INVALID,
    invariant="no_loss",
    invariants_also=("recovery",),
    reference="rabbitmq/ra#382",
    intermittent=True,
    queue_types=("quorum",),
    trace="loses_with_power",
    log="pre_init failed to read config file for UId",
)

#: Declarations of the last seconds, when all nodes lose power: Mnesia does not flush its log when it commits. From 4.2
#: on, new clusters keep their metadata in Khepri, which flushes its log.
MNESIA_NOT_FLUSHED = Expectation(
    broker="<4.2",
    verdict=Verdict.INVALID,
    invariant="metadata",
    intermittent=True,
    trace="forgets_with_power",
    documentation="Mnesia does not flush its transaction log when a transaction is committed (reference manual, "
    "mnesia:sync_log/0; erlang/otp#3975).",
)

#: As queues are metadata, those that were declared shortly before can be gone, with all their messages.
QUEUES_NOT_FLUSHED = Expectation(
    broker="<4.2",
    verdict=Verdict.INVALID,
    invariant="no_loss",
    invariants_also=("recovery",),
    intermittent=True,
    trace="forgets_queues_with_power",
    documentation=MNESIA_NOT_FLUSHED.documentation,
)

#: Entries of a quorum queue's log have checksums. A node that finds one wrong in its write-ahead log, or an entry of no
#: member, does not start. A member that finds one wrong in a segment stayed away on 4.0.5, and came back on 4.3.6.
DAMAGE_IS_NOTICED = partial(
    Expectation,
    broker=">=4.0",
    verdict=Verdict.INVALID,
    invariant="recovery",
    intermittent=True,
    queue_types=("quorum",),
)
SEGMENT_IS_NOTICED = DAMAGE_IS_NOTICED(
    log="ra_log_segment_crc_check_failure",
    documentation="rabbitmq/ra, ra_log_segment.erl, 2.14 to 3.1: an entry is compared with its checksum when it is "
    "read.",
)
LOG_IS_NOTICED = DAMAGE_IS_NOTICED(
    log="failed_to_start_child,ra_log_wal,",
    documentation="rabbitmq/ra, ra_log_wal.erl, 2.14 to 3.1: a log with an entry that differs from its "
    "checksum, or names no writer, is not recovered.",
)


def lost_power(node: str, **fields: Any) -> PowerCut:
    return PowerCut.model_validate(
        {"at_s": FIRST_STEP_S, "for_s": AWAY_S, "node": node, "written_back_after_s": WRITTEN_BACK_S, **fields}
    )


def without_power(
    play: Play,
    title: str,
    queue_type: str,
    tick_s: int,
    *schedule: AnyFault,
    topology: str = THREE,
    without: Sequence[str] = (),
    expect: Sequence[Expectation] = (),
    since: str = SINCE,
    **fields: Any,
) -> Result:
    """Play a scenario that demands every promise, except those in ``without``. ``fields`` are those of the workload."""
    waits_s = max(step.at_s or 0.0 for step in schedule) + sum(step.for_s for step in schedule) + READ_AFTER_S
    slowly = ProcessingStep(processing_ms=HARDLY_READ_MS, for_s=waits_s)
    load = workload(
        queue_type,
        **{"prefetch": 10, "ack_every": 1, "declare_every_s": 0.5, "variable_processing": [slowly], **fields},
    )
    shaped = shape(topology, tick_s)
    # The only copy of a classic queue is away with its node.
    alone = ["availability"] if queue_type == "classic" else []
    scenario = promising(
        title,
        shaped,
        load,
        schedule,
        demanded={
            **promised(shaped, recovered_within_s=RECOVERED_WITHIN_S),
            "metadata": {},
            **dict.fromkeys([*alone, *without]),
        },
        phases=Phases.model_validate(PHASES),
        broker=versions(load, since=since),
        expect=[*expect, *known_losses(queue_type, schedule, without)],
    )
    return play(scenario)


def known_losses(queue_type: str, schedule: Sequence[AnyFault], without: Sequence[str] = ()) -> Iterator[Expectation]:
    """Yield the losses that are by design, except those of invariants ``without`` which the scenario is played.

    Only a power cut takes away what was not flushed.
    """
    cut = [step.node for step in schedule if isinstance(step, PowerCut)]
    if cut and queue_type == "classic":
        yield NOT_FLUSHED
    if "all" in cut and "metadata" not in without:
        yield MNESIA_NOT_FLUSHED


@EVERY_TYPE
@pytest.mark.parametrize("node", ["leader:q1", "all"])
def test_power_is_cut(node: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """The queues were declared long ago, and messages came until the end."""
    title = "Every node loses power" if node == "all" else "The node of a leader loses power"
    cut = lost_power(node)
    without = ["availability"] if node == "all" else []
    without_power(play, title, queue_type, net_ticktime_s, cut, without=without)


@pytest.mark.parametrize(
    ("file_system", "queue_type"),
    [("ordered", "quorum"), ("ordered", "classic"), ("ordered", "mirrored"), ("ext4", "quorum"), ("ext4", "classic")],
)
def test_every_node_loses_power_soon_after_queues_were_declared(
    file_system: FileSystem, queue_type: str, net_ticktime_s: int, play: Play
) -> None:
    """Nothing was written back since the cluster was formed.

    Nodes of 3.10 with a new classic queue do not start again on ext4: ``faults/incidents`` has that. No more quorum
    queues are declared: in the logs, one of them would be the trace for a loss in another queue.
    """
    cut = PowerCut(at_s=CUT_AT_S, for_s=AWAY_S, node="all", file_system=file_system)
    title = "Every node loses power soon after queues were declared" + ON_EXT4 * (file_system == "ext4")
    without, known = ["availability"], [QUEUES_NOT_FLUSHED]
    more: dict[str, Any] = {}
    if queue_type == "quorum":
        without, more = [*without, "metadata"], {"declare_every_s": None}
        if file_system == "ordered":
            known = [CONFIGURATION_NOT_FLUSHED, *known]
    since = "4.0" if (file_system, queue_type) == ("ext4", "classic") else SINCE
    without_power(play, title, queue_type, net_ticktime_s, cut, without=without, expect=known, since=since, **more)


@EVERY_TYPE
def test_a_minority_loses_power(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cut = lost_power("minority")
    without_power(play, "Two of five nodes lose power", queue_type, net_ticktime_s, cut, topology=FIVE)


@EVERY_TYPE
def test_every_node_loses_power_with_large_messages(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    cut = lost_power("all")
    title = "Every node loses power with large messages"
    large: dict[str, Any] = {"message_bytes": STORED_APART_BYTES, "rate_per_s": 150}
    without_power(play, title, queue_type, net_ticktime_s, cut, without=["availability"], **large)


@EVERY_TYPE
@pytest.mark.parametrize(("file_system", "torn"), OTHER_DISKS, ids=["ext4", "posix", "torn"])
def test_every_node_loses_power_on_other_disks(
    file_system: FileSystem, torn: bool, queue_type: str, net_ticktime_s: int, play: Play
) -> None:
    """Names stay that were not flushed themselves; or none of them does; or parts of files stay, in whole sectors."""
    cut = lost_power("all", file_system=file_system, torn=torn)
    title = OTHER_DISKS[file_system, torn]
    without_power(play, title, queue_type, net_ticktime_s, cut, without=["availability"])


@EVERY_TYPE
def test_power_is_cut_during_a_rolling_restart(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """The second of three nodes that are restarted in turn loses power instead."""
    stop = Stop(at_s=CUT_AT_S, for_s=AWAY_S, node="a1")
    cut = lost_power("b1", when=_after(0, "a1"), at_s=None)
    last = Stop(when=_after(1, "b1"), for_s=AWAY_S, node="c1")
    title = "A node loses power during a rolling restart"
    without_power(play, title, queue_type, net_ticktime_s, stop, cut, last)


@EVERY_TYPE
def test_power_is_cut_during_an_election(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """The zone of a leader is cut off; as soon as the others may notice it, one of them loses power."""
    noticed_s_max = noticed_s(net_ticktime_s)
    apart = Partition(at_s=CUT_AT_S, for_s=noticed_s_max + 2 * AWAY_S, between=["zone:a", "rest"])
    cut = lost_power("b1", at_s=CUT_AT_S + noticed_s_max - WRITTEN_BACK_S)
    title = "A node loses power during an election after a cut"
    known, without = [CREATED_IN_A_MINORITY], ["availability"]
    if queue_type == "mirrored":
        known.append(OLDER_COPY_LEADS)
    without_power(play, title, queue_type, net_ticktime_s, apart, cut, without=without, expect=known)


@EVERY_TYPE
def test_every_node_loses_power_with_a_backlog(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """The messages of each queue span several segments."""
    cut = lost_power("all", at_s=20.0)
    title = "Every node loses power with a backlog"
    topology = SMALL_LOGS if queue_type == "quorum" else THREE
    without_power(play, title, queue_type, net_ticktime_s, cut, topology=topology, without=["availability"])


@EVERY_TYPE
def test_disk_of_a_leader_is_slow(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    slow = SlowDisk(at_s=CUT_AT_S, for_s=20.0, node="leader:q1", flush_ms=SLOW_FLUSH_MS)
    without_power(play, "The disk of a leader's node is slow", queue_type, net_ticktime_s, slow)


def test_log_of_a_leader_fails(net_ticktime_s: int, play: Play) -> None:
    errors = DiskErrors(at_s=CUT_AT_S, for_s=10.0, node="leader:q1", files="*.wal")
    without_power(play, "The log of a leader's node cannot be written", "quorum", net_ticktime_s, errors)


@pytest.mark.parametrize("how", ["flip_bits", "cut_tail", "old_copy"])
@pytest.mark.parametrize("file", ["segment", "write_ahead_log"])
def test_file_of_a_member_is_damaged(file: Kind, how: Any, net_ticktime_s: int, play: Play) -> None:
    """The others are up, and confirm more messages before the node starts again."""
    damage = DamageFile(at_s=15.0, for_s=3 * AWAY_S, node="leader:q1", file=file, how=how)
    topology = SMALL_LOGS if file == "segment" else THREE
    title = f"A {file.replace('_', ' ')} of a leader's node is damaged ({how.replace('_', ' ')})"
    # A node that does not start cannot say what it knows.
    without = ["metadata"] if (file, how) == ("write_ahead_log", "flip_bits") else []
    known = [SEGMENT_IS_NOTICED if file == "segment" else LOG_IS_NOTICED]
    without_power(play, title, "quorum", net_ticktime_s, damage, topology=topology, without=without, expect=known)


@pytest.mark.parametrize("file", ["message_store", "queue_index"])
def test_file_of_a_classic_queue_is_damaged(file: Kind, net_ticktime_s: int, play: Play) -> None:
    damage = DamageFile(at_s=15.0, for_s=AWAY_S, node="leader:q1", file=file, how="cut_tail")
    large: dict[str, Any] = {"message_bytes": STORED_APART_BYTES, "rate_per_s": 150}
    title = f"A {file.replace('_', ' ')} of a classic queue is damaged"
    without_power(play, title, "classic", net_ticktime_s, damage, **(large if file == "message_store" else {}))


def _after(step: int, node: str) -> When:
    """Return the condition that a step is over and its node is up again."""
    return When(after_step=AfterStep(step=step, wait_s=1.0), node_is=NodeIs(node=node, state="up"))
