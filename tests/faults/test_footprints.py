"""What each step touches is known before the start, and consistent."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis import fault_catalogue
from rabbitmq_resilience.nemesis.combining import Combination
from rabbitmq_resilience.nemesis.fault import FaultContext, Injection
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.nemesis.footprint import FORMER_MEMBERS, Footprint
from rabbitmq_resilience.nemesis.on_methods import MethodStep
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.tools.entry_points import ExtensionError
from tests.messages import Messages

THREE = topology_catalogue.load("three_nodes_three_zones")
FIVE = topology_catalogue.load("five_nodes_three_zones")


class Snooze(ScheduledFault):
    """A fault of another package, which says nothing of what it touches."""

    fault: Literal["snooze"] = "snooze"
    node: str

    acts_on: ClassVar[str] = "processes"

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> Injection:
        raise NotImplementedError


class FormerSnooze(Snooze):
    """The same, as it was written for version 0.1."""

    def touches_processes(self, _topology: object) -> frozenset[str]:
        return frozenset({self.node})

    @property
    def unsettles(self) -> bool:
        return True


#: A workload with processes that single methods can be held back from.
APPLICATION = "workload: {kind: application, processes: [{name: web, command: [web]}]}\n"


def of(step: str, *, workload: str = "") -> Footprint:
    """What a step touches on five nodes, of which two each are in zones a and b, and one is in zone c."""
    return read(step, workload=workload).footprints[0]


def read(*steps: str, workload: str = "") -> Scenario:
    schedule = "".join(f"  - {{{step}}}\n" for step in steps)
    head = f"version: 1\ntitle: x\ntopology: five_nodes_three_zones\n{workload}"
    return fault_file.parse(f"{head}schedule:\n{schedule}invariants: {{no_loss: {{}}}}\n", driver=None)


def test_a_leader_may_be_any_node_and_is_one() -> None:
    killed = of('at_s: 1, for_s: 5, fault: kill, node: "leader:q1"')
    assert killed.processes == frozenset()
    assert killed.possible_processes == {*FIVE.node_names}
    assert (killed.acts, killed.together, killed.is_fixed) == ({"kill": 1}, 4, False)


def test_a_zone_is_known_before() -> None:
    killed = of('at_s: 1, for_s: 5, fault: kill, node: "zone:a"')
    assert killed.processes == killed.possible_processes == {"a1", "a2"}
    assert killed.leaves_majority(FIVE)
    assert not replace(killed, together=2).leaves_majority(FIVE)


def test_no_node_surely_serves_where_any_may_pause() -> None:
    scenario = read("at_s: 1, for_s: 5, fault: kill, node: a1")
    listed = FIVE.model_copy(update={"partition_handling": "pause_if_all_down", "pause_if_all_down": object()})
    assert scenario.footprints[0].leaves_majority(FIVE)
    assert not scenario.schedule[0].footprint(listed).leaves_majority(listed)


def test_a_cut_leaves_its_largest_side() -> None:
    cut = of('at_s: 1, for_s: 5, fault: partition, between: ["zone:a", rest], one_way: true')
    assert cut.together == 3
    one_way = {Link(a, b) for a in ("a1", "a2") for b in ("b1", "b2", "c1")}
    assert cut.links == cut.proxied == one_way | {link.back for link in one_way}
    assert not cut.slows_links
    assert of("at_s: 1, for_s: 5, fault: partition, between: [minority, rest]").sure_links == frozenset()


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.example])
def test_what_a_fault_states_agrees(name: str) -> None:
    workload = APPLICATION if issubclass(FAULTS[name], MethodStep) else ""
    found = of(f"at_s: 1, for_s: 30, fault: {name}, {FAULTS[name].example}", workload=workload)
    assert found.processes <= found.possible_processes
    assert found.acts.keys() <= ACTIONS.keys()
    assert not (found.links and found.packets)
    assert bool(found.packets) == (found.packets_by is not None)
    assert found.together is None or 0 <= found.together <= 5
    assert found.acted_on & {*FIVE.node_names} or not found.acts.keys() & {"kill", "stop", "pause", "alarm"}


def test_a_fault_without_a_footprint_touches_the_processes_of_its_node() -> None:
    one, other = (Snooze(node=node, at_s=1, for_s=5) for node in ("zone:a", "leader:q1"))
    assert one.footprint(THREE) == Footprint(("zone:a",), frozenset({"a1"}), frozenset({"a1"}))
    assert other.footprint(THREE).possible_processes == {*THREE.node_names}
    (trouble,) = Combination([one, one.model_copy(update={"at_s": 3})], THREE, [0, 1]).troubles()
    assert "has taken a1 away" in trouble.text


def test_a_fault_of_version_0_1_is_refused_with_what_to_write(message: Messages) -> None:
    with message.of(ExtensionError) as refused:
        fault_catalogue.checked({"snooze": FormerSnooze})
    assert "processes, unsettles" in str(refused.value)
    assert {*FORMER_MEMBERS.values()} <= {*Footprint.__dataclass_fields__}
