"""The list of all faults. A new fault is one file and one line here, or an entry point of another package.

An entry point of the group ``rabbitmq_resilience.faults`` has the fault's name and
names its class, a ``nemesis.scheduled_fault.ScheduledFault``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from rabbitmq_resilience.nemesis.alarm import Alarm
from rabbitmq_resilience.nemesis.answer_method import AnswerMethod
from rabbitmq_resilience.nemesis.clock import Clock
from rabbitmq_resilience.nemesis.damage_file import DamageFile
from rabbitmq_resilience.nemesis.delete_queue import DeleteQueue
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.disk_errors import DiskErrors
from rabbitmq_resilience.nemesis.disk_full import DiskFull
from rabbitmq_resilience.nemesis.drain_node import DrainNode
from rabbitmq_resilience.nemesis.drop_method import DropMethod
from rabbitmq_resilience.nemesis.enable_feature_flag import EnableFeatureFlag
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.footprint import FORMER_MEMBERS
from rabbitmq_resilience.nemesis.hold_method import HoldMethod
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.kill_client import KillClient
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.limit import Limit
from rabbitmq_resilience.nemesis.lose_disk import LoseDisk
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.pause import Pause
from rabbitmq_resilience.nemesis.power_cut import PowerCut
from rabbitmq_resilience.nemesis.purge_queue import PurgeQueue
from rabbitmq_resilience.nemesis.rebalance import Rebalance
from rabbitmq_resilience.nemesis.rolling_restart import RollingRestart
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.set_policy import SetPolicy
from rabbitmq_resilience.nemesis.slow_disk import SlowDisk
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.nemesis.stress import Stress
from rabbitmq_resilience.nemesis.upgrade import Upgrade
from rabbitmq_resilience.tools.entry_points import ExtensionError, merged

OURS: tuple[type[ScheduledFault], ...] = (
    Partition,  # a network partition between sides
    Disconnect,  # connections between sides die and are refused
    Flapping,  # a partition that comes and goes
    Latency,  # slow directed links
    Kill,  # brokers or load balancers die at once
    KillClient,  # a publisher or consumer dies at once
    Pause,  # brokers or load balancers freeze
    Stop,  # brokers are shut down gracefully
    Upgrade,  # brokers are replaced by another version, on the same data
    LoseDisk,  # brokers die at once, and their data is gone
    Alarm,  # brokers run out of memory or disk, and block publishers
    Netem,  # packets between brokers are lost, delayed, damaged or repeated
    Limit,  # brokers get less CPU or memory
    DiskFull,  # the disk of a broker is full to the last block
    PowerCut,  # brokers lose power, with all that they had not flushed
    SlowDisk,  # writes and flushes take longer
    DiskErrors,  # writes and flushes fail
    DamageFile,  # a stored file is damaged while its broker is down
    Clock,  # the clock of a broker jumps
    Stress,  # other processes take CPU, memory and disk from brokers
    HoldMethod,  # the reply to one method of AMQP comes late
    DropMethod,  # a method never arrives
    AnswerMethod,  # a method is answered with an error
    PurgeQueue,  # the messages of a queue are dropped by hand
    DeleteQueue,  # a queue is deleted by hand, and declared again
    Rebalance,  # leaders are spread over the nodes
    EnableFeatureFlag,  # a feature flag is enabled by hand
    SetPolicy,  # a policy is set on queues by hand, and taken away again
    DrainNode,  # the machines of brokers are drained
    RollingRestart,  # brokers are restarted in turn by the orchestrator that keeps them running
)


def name_of(fault: type[ScheduledFault]) -> str:
    """Return the name of the fault in fault files."""
    return str(fault.model_fields["fault"].default)


def checked(faults: Mapping[str, type[ScheduledFault]]) -> Mapping[str, type[ScheduledFault]]:
    """Return ``faults``. Raise ExtensionError for a fault whose name in fault files would differ from its entry
    point, or that has members of version 0.1 in place of a footprint."""
    for name, fault in faults.items():
        if "fault" not in fault.model_fields or name_of(fault) != name:
            wanted = f'fault: Literal["{name}"] = "{name}"'
            raise ExtensionError(f"the entry point {name}: {fault.__name__} must state {wanted}")
        if former := _former_members(fault):
            fields = ", ".join(dict.fromkeys(FORMER_MEMBERS[member] for member in former))
            text = f"{fault.__name__} has {', '.join(former)}, which nothing reads any more; return a Footprint"
            raise ExtensionError(f"the entry point {name}: {text} with {fields} from its method footprint(topology)")
    return faults


def _former_members(fault: type[ScheduledFault]) -> list[str]:
    """Return the members by which the fault stated what it touches up to version 0.1."""
    own = {member for base in fault.__mro__ if issubclass(base, ScheduledFault) for member in vars(base)}
    return [member for member in FORMER_MEMBERS if member in own]


FAULTS: Mapping[str, type[ScheduledFault]] = checked(
    merged({name_of(fault): fault for fault in OURS}, "faults", base=ScheduledFault)
)

if TYPE_CHECKING:
    AnyFault = ScheduledFault
else:
    AnyFault = Annotated[reduce(or_, FAULTS.values()), Field(discriminator="fault")]
