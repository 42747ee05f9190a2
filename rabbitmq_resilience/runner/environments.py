"""Keep the drivers and brokers that a session plays scenarios on, with one cluster at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.broker.versions import lacking
from rabbitmq_resilience.sut.drivers import DRIVERS, OpenDriver
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.tools.closing import Closing


@dataclass(frozen=True)
class Environment:
    """A driver with a broker to play on. ``why_not_others``: why brokers that come first were not taken."""

    opened: OpenDriver
    clusters: ClusterPool
    testbed: RunContext
    why_not_others: str = ""

    @property
    def description(self) -> str:
        """Return in words the broker, its origin and why it was taken: "RabbitMQ 4.0.5, at home"."""
        said = f"RabbitMQ {self.opened.broker_version}, {self.opened.origin}"
        return f"{said}, as {self.why_not_others}" if self.why_not_others else said


class Environments(Closing):
    """Open each driver when it is first needed; ``close`` ends all clusters and drivers."""

    def __init__(self, own: Callable[[], Environment]) -> None:
        """``own`` returns the ground of the session's options, which the session closes itself."""
        self._own = own
        self._opened = ExitStack()
        self._found: dict[tuple[str | None, str | None], Environment] = {}
        self._in_use: Environment | None = None

    def at(self, driver: str | None = None, broker: str | None = None) -> Environment:
        """Return the ground of a driver and a version, image or folder of the broker; by default the session's own.

        End the cluster of another ground. Raise ToolMissingError, ImageNameError or WrongBrokerError if the driver or
        the broker cannot be used.
        """
        found = self._found_at(driver, broker)
        if self._in_use is not None and self._in_use is not found:
            self._in_use.clusters.close()
        self._in_use = found
        return found

    def of(self, *scenarios: Scenario) -> Environment:
        """Return the ground for these scenarios, and end the cluster of another ground.

        It has the session's own broker if one was named, or else the first home with all features that they need.
        """
        own = self._found_at(None, None)
        if not own.opened.homes:
            return self.at()
        version, why_not = first_home(scenarios, own.opened.homes)
        found = self.at() if version == own.opened.broker_version else self.at(None, version)
        return replace(found, why_not_others=why_not)

    def _found_at(self, driver: str | None, broker: str | None) -> Environment:
        asked = (driver, broker)
        if asked not in self._found:
            self._found[asked] = self._open(driver, broker) if driver or broker else self._own()
        return self._found[asked]

    def _open(self, driver: str | None, broker: str | None) -> Environment:
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
        return Environment(opened, clusters, testbed)

    def close(self) -> None:
        self._opened.close()


def first_home(scenarios: Sequence[Scenario], versions: Sequence[str]) -> tuple[str, str]:
    """Return the first of ``versions`` that suits all scenarios, and why the versions before it do not.

    If none does, return the first one: a scenario that cannot be played there says so itself.
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
