"""What scenarios are played on, where one session plays on several: drivers and brokers, one cluster at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rabbitmq_resilience.clusters.broker.versions import lacking
from rabbitmq_resilience.clusters.drivers import DRIVERS, OpenDriver
from rabbitmq_resilience.clusters.pool import ClusterPool
from rabbitmq_resilience.play.run import Testbed
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.tools.closing import Closing


@dataclass(frozen=True)
class Ground:
    """What a scenario is played on. ``why_not_others``: why no broker is played that would have been taken first."""

    opened: OpenDriver
    clusters: ClusterPool
    testbed: Testbed
    why_not_others: str = ""

    @property
    def description(self) -> str:
        """The broker, where it comes from and why it was taken: "RabbitMQ 4.0.5, at home"."""
        said = f"RabbitMQ {self.opened.broker_version}, {self.opened.origin}"
        return f"{said}, as {self.why_not_others}" if self.why_not_others else said


class Grounds(Closing):
    """Opens a driver when it is first asked for; ``close`` ends all clusters and drivers."""

    def __init__(self, own: Callable[[], Ground]) -> None:
        """``own``: the session's, as its options say, which it closes itself."""
        self._own = own
        self._opened = ExitStack()
        self._found: dict[tuple[str | None, str | None], Ground] = {}
        self._in_use: Ground | None = None

    def at(self, driver: str | None = None, broker: str | None = None) -> Ground:
        """Return that of a driver, and of a version, image or folder of the broker; the session's own where nothing is
        named. A cluster of another one ends. Raises ToolMissingError, ImageNameError or WrongBrokerError."""
        found = self._found_at(driver, broker)
        if self._in_use is not None and self._in_use is not found:
            self._in_use.clusters.close()
        self._in_use = found
        return found

    def of(self, *scenarios: Scenario) -> Ground:
        """Return what these scenarios are played on: the session's own broker where one was named, otherwise the first
        home that has what all of them need. A cluster of another one ends."""
        own = self._found_at(None, None)
        if not own.opened.homes:
            return self.at()
        version, why_not = first_home(scenarios, own.opened.homes)
        found = self.at() if version == own.opened.broker_version else self.at(None, version)
        return replace(found, why_not_others=why_not)

    def _found_at(self, driver: str | None, broker: str | None) -> Ground:
        asked = (driver, broker)
        if asked not in self._found:
            self._found[asked] = self._open(driver, broker) if driver or broker else self._own()
        return self._found[asked]

    def _open(self, driver: str | None, broker: str | None) -> Ground:
        own = self._own()
        name = driver or own.testbed.driver
        opened = DRIVERS[name].open(broker)
        self._opened.callback(opened.close)
        clusters = self._opened.enter_context(ClusterPool(opened.form, keeps=opened.keeps))
        testbed = replace(
            own.testbed,
            clusters=clusters,
            find_prometheus=opened.find_prometheus,
            driver=name,
            require=opened.require,
        )
        return Ground(opened, clusters, testbed)

    def close(self) -> None:
        self._opened.close()


def first_home(scenarios: Sequence[Scenario], versions: Sequence[str]) -> tuple[str, str]:
    """Return the first of ``versions`` that has what all scenarios need, and why those before it have not.

    Where none has, it is the first one: a scenario that cannot be played there says so itself.
    """
    refused: list[str] = []
    for version in versions:
        reasons = list(filter(None, (reason_against(version, scenario) for scenario in scenarios)))
        if not reasons:
            return version, "; ".join(dict.fromkeys(refused))
        refused.append(reasons[0])
    return versions[0], ""


def reason_against(version: str, scenario: Scenario) -> str:
    """Return why a scenario cannot be played on that version; empty if it can."""
    if missing := lacking(version, scenario.needs):
        return f"{version} has no {', '.join(missing)}"
    return "" if scenario.applies_to(version) else f"it is for {scenario.broker}"
