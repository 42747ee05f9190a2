"""What scenarios are played on, where one session plays on several: drivers and brokers, one cluster at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rabbitmq_resilience.clusters.drivers import DRIVERS, OpenDriver
from rabbitmq_resilience.clusters.pool import ClusterPool
from rabbitmq_resilience.play.run import Testbed
from rabbitmq_resilience.tools.closing import Closing


@dataclass(frozen=True)
class Ground:
    opened: OpenDriver
    clusters: ClusterPool
    testbed: Testbed


class Grounds(Closing):
    """Opens a driver when it is first asked for; ``close`` ends all clusters and drivers."""

    def __init__(self, own: Callable[[], Ground]) -> None:
        """``own``: the session's, as its options say, which it closes itself."""
        self._own = own
        self._opened = ExitStack()
        self._found: dict[tuple[str | None, str | None], Ground] = {}
        self._in_use: Ground | None = None

    def at(self, driver: str | None = None, broker: str | None = None) -> Ground:
        """That of a driver, and of a version, image or folder of the broker; the session's own where nothing is said.
        A cluster of another one ends. Raises ToolMissingError, ImageNameError or WrongBrokerError."""
        asked = (driver, broker)
        if asked not in self._found:
            self._found[asked] = self._open(driver, broker) if driver or broker else self._own()
        found = self._found[asked]
        if self._in_use is not None and self._in_use is not found:
            self._in_use.clusters.close()
        self._in_use = found
        return found

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
