"""The fault upgrade: what it needs, what is refused before the start, and when it counts as done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rabbitmq_resilience.history.events import Effect, FaultEvent
from rabbitmq_resilience.nemesis import upgrade
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.upgrade import UpgradeInjection
from rabbitmq_resilience.runner.judging import upgraded_to
from rabbitmq_resilience.sut.broker.versions import ANY_IMAGE, UPGRADE_TO
from tests.faults.written_steps import parsed, refused
from tests.messages import Messages

pytestmark = pytest.mark.usefixtures("clock")

UPGRADE = {"at_s": 2, "for_s": 9, "fault": "upgrade", "node": "a1", "to": "3.11.28"}


def test_it_needs_an_image_and_support_unless_it_says_otherwise() -> None:
    assert parsed(UPGRADE).needs == {f"{UPGRADE_TO}3.11.28"}
    assert parsed({**UPGRADE, "unsupported": True}).needs == {f"{ANY_IMAGE}3.11.28"}


def test_refused_before_anything_starts(message: Messages) -> None:
    for told, name in (
        (refused(UPGRADE, driver="attached"), "fault"),
        (refused({**UPGRADE, "to": "newest"}), "to"),
        (refused({**UPGRADE, "node": "z9"}), "node"),
    ):
        assert f"schedule[0].{name}" in told
        message(told)


def test_the_folder_of_a_broker_is_for_processes() -> None:
    assert parsed({**UPGRADE, "to": "/opt/rabbitmq"}).needs == {f"{UPGRADE_TO}/opt/rabbitmq"}


def test_a_node_that_is_away_for_its_upgrade_cannot_be_killed_too(message: Messages) -> None:
    kill = {"at_s": 5, "for_s": 2, "fault": "kill", "node": "zone:a"}
    message(refused(UPGRADE, kill))


@dataclass
class Api:
    """What one node tells."""

    told: str
    running: Sequence[str]
    flags: Sequence[dict[str, str]] = ()

    def version(self) -> str:
        return self.told

    def running_nodes(self) -> frozenset[str]:
        return frozenset(self.running)

    def get(self, path: str) -> Sequence[dict[str, str]]:
        assert path == "feature-flags"
        return self.flags


@dataclass
class Cluster:
    """A literal cluster: c1 is down for another reason."""

    apis: dict[str, Api]
    states: dict[str, str] = field(default_factory=lambda: {"a1": "up", "b1": "up", "c1": "down"})
    topology: Any = field(default_factory=lambda: SimpleNamespace(node_names=("a1", "b1", "c1")))
    tools: list[tuple[str, ...]] = field(default_factory=list)

    def state(self, node: str) -> str:
        return self.states[node]

    def process(self, node: str) -> str:
        return "gone" if self.states[node] == "down" else "running"

    def api(self, node: str) -> Api:
        return self.apis[node]

    def broker_name(self, node: str) -> str:
        return f"{node}@localhost"

    def upgrade(self, node: str, to: str) -> None:
        raise AssertionError(f"{node} does not become {to} by looking at it")

    def version_of(self, node: str) -> str:
        return {"a1": "3.11.28"}.get(node, "3.10.8")

    def version_named(self, to: str) -> str:
        return to

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float) -> str:  # noqa: ARG002
        self.tools.append((node, tool, *arguments))
        return ""


BOTH = ("a1@localhost", "b1@localhost")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "JOINED_WITHIN_S", 0.1)
    monkeypatch.setattr(upgrade, "ENABLED_WITHIN_S", 0.1)


def injection(cluster: Cluster, *, flags: bool = False) -> UpgradeInjection:
    context = cast(FaultContext, SimpleNamespace(cluster=cluster))
    return UpgradeInjection(context, ("a1",), lambda _: None, lambda _: None, "gone", flags, "3.11.28")


def test_proven_by_its_version_and_by_being_seen_from_both_sides(message: Messages) -> None:
    proof = injection(Cluster({"a1": Api("3.11.28", BOTH), "b1": Api("3.10.8", BOTH)})).prove_healed()

    assert proof.proven
    message(proof.detail)


@pytest.mark.parametrize(
    ("mine", "other", "names"),
    [
        (Api("3.10.8", BOTH), Api("3.10.8", BOTH), "3.10.8"),
        (Api("3.11.28", BOTH[:1]), Api("3.10.8", BOTH), "b1"),
        (Api("3.11.28", BOTH), Api("3.10.8", BOTH[1:]), "b1"),
    ],
)
def test_not_proven_by_an_old_version_or_one_alone(mine: Api, other: Api, names: str, message: Messages) -> None:
    proof = injection(Cluster({"a1": mine, "b1": other})).prove_healed()

    assert not proof.proven
    assert names in proof.detail
    message(proof.detail)


def test_a_version_that_ends_itself_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setattr(upgrade, "JOINED_WITHIN_S", 3600.0)
    cluster = Cluster({"b1": Api("3.10.8", BOTH[1:])}, states={"a1": "down", "b1": "up", "c1": "up"})

    proof = injection(cluster).prove_healed()

    assert not proof.proven
    message(proof.detail)


def test_feature_flags_are_enabled_and_looked_at(message: Messages) -> None:
    stable = {"name": "streams", "state": "enabled", "stability": "stable"}
    off = {"name": "message_containers", "state": "disabled", "stability": "stable"}
    experimental = {"name": "khepri_db", "state": "disabled", "stability": "experimental"}

    cluster = Cluster({"a1": Api("3.11.28", BOTH, [stable, experimental]), "b1": Api("3.10.8", BOTH)})
    whole = injection(cluster, flags=True)
    whole.heal()
    assert cluster.tools == [("a1", "rabbitmqctl", "enable_feature_flag", "all")]
    assert whole.prove_healed().proven

    left = Cluster({"a1": Api("3.11.28", BOTH, [stable, off]), "b1": Api("3.10.8", BOTH)})
    proof = injection(left, flags=True).prove_healed()
    assert not proof.proven
    assert "message_containers" in proof.detail
    message(proof.detail)


def test_what_nodes_became_is_reported_once_each_was_seen() -> None:
    def reached(step: int, state: str, version: str, fault: str = "upgrade") -> FaultEvent:
        return FaultEvent(t_us=step, step=step, fault=fault, state=state, effect=Effect(becomes=version))

    first, second = (reached(step, "heal_proven", "3.11.28") for step in (0, 1))
    flag = reached(2, "heal_proven", "khepri_db", "enable_feature_flag")
    assert upgraded_to([second, first, flag, reached(3, "proven", "3.12.0")]) == ["3.11.28"]
    assert upgraded_to([reached(5, "heal_proven", "3.12.0"), first]) == ["3.11.28", "3.12.0"]
    assert upgraded_to([]) == []
