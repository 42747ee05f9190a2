"""Every fault there is. A new one is one file and one line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from faults.alarm import Alarm
from faults.clock import Clock
from faults.delete_queue import DeleteQueue
from faults.disconnect import Disconnect
from faults.disk_full import DiskFull
from faults.flapping import Flapping
from faults.kill import Kill
from faults.kill_client import KillClient
from faults.latency import Latency
from faults.limit import Limit
from faults.lose_disk import LoseDisk
from faults.packet_corrupt import PacketCorrupt
from faults.packet_delay import PacketDelay
from faults.packet_duplicate import PacketDuplicate
from faults.packet_loss import PacketLoss
from faults.packet_rate import PacketRate
from faults.partition import Partition
from faults.pause import Pause
from faults.purge_queue import PurgeQueue
from faults.rebalance import Rebalance
from faults.stop import Stop
from faults.stress import Stress
from faults.upgrade import Upgrade

AnyFault = Annotated[
    Partition  # a network partition between sides
    | Disconnect  # connections between sides die and are refused
    | Flapping  # a partition that comes and goes
    | Latency  # slow directed links
    | Kill  # brokers die at once
    | KillClient  # a publisher or consumer dies at once
    | Pause  # brokers freeze
    | Stop  # brokers are shut down in good order
    | Upgrade  # brokers are replaced by those of another version, on the same data
    | LoseDisk  # brokers die at once, and their data is gone
    | Alarm  # brokers run out of memory or disk, and block publishers
    | PacketLoss  # packets between brokers are lost
    | PacketDelay  # they arrive later
    | PacketDuplicate  # they arrive twice
    | PacketCorrupt  # they are damaged
    | PacketRate  # they wait for each other
    | Limit  # brokers get less CPU or memory
    | DiskFull  # the disk of a broker is full to the last block
    | Clock  # the clock of a broker jumps
    | Stress  # others take CPU, memory and disk beside brokers
    | PurgeQueue  # the messages of a queue are dropped by hand
    | DeleteQueue  # a queue is deleted by hand, and declared again
    | Rebalance,  # leaders are spread over the nodes
    Field(discriminator="fault"),
]
