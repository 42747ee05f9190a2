"""The acts that a scenario may do to a cluster that runs already."""

from __future__ import annotations

from collections.abc import Mapping

#: The prefix of a word of ``ACTS`` among the needs of a scenario.
ACT = "act "


#: The acts that can be allowed on brokers, one word each, with the meaning for people who allow them.
#: ``nemesis.footprint.Footprint.acts`` says which of them a fault does, and ``permits`` by which ways each
#: can be done.
ACTS: Mapping[str, str] = {
    "kill": "the broker's process is ended by SIGKILL and started again",
    "stop": "the broker is shut down cleanly and started again",
    "pause": "the broker's process is suspended",
    "cut": "packets between brokers are dropped",
    "refuse": "connections between brokers are reset and refused",
    "lose_packets": "some of the packets between brokers are lost",
    "delay": "packets between brokers arrive later",
    "disturb": "packets between brokers are damaged, repeated, or wait for each other",
    "drain": "the broker is put into maintenance mode: all its clients and leaders go elsewhere",
    "alarm": "a limit of memory or disk is set so that the alarm goes off, which blocks all publishers of the cluster",
    "fill_disk": "the broker's disk is filled to the last block, which blocks all publishers and may end the broker",
    "rebalance": "leaders of all queues of the cluster are rebalanced",
    "configure": "the broker gets other settings",
    "enable_feature_flag": "a feature flag is enabled on all brokers, for good",
    "lose_data": "all that the broker has stored is removed",
    "drain_node": "the machine accepts no new pods, and its brokers have to leave it; with drain_node: all, every pod",
    "restart_all": "all brokers are restarted, one after another",
}
