"""Check scenarios and their brokers without playing them (``--check-only``); no broker is started."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rabbitmq_resilience.extension_points import provided
from rabbitmq_resilience.plugin import options
from rabbitmq_resilience.plugin.failures import sentence
from rabbitmq_resilience.plugin.preparing import Checked, fitted, seeded
from rabbitmq_resilience.plugin.sessions import give_up
from rabbitmq_resilience.runner.environments import first_home
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.notes import noted
from rabbitmq_resilience.scenario.validation import validated
from rabbitmq_resilience.sut.broker.versions import (
    ANY_IMAGE,
    UPGRADE_TO,
    UnsupportedUpgradeError,
    lacking,
    require_supported,
)
from rabbitmq_resilience.sut.drivers import IMAGES_AT_HOME
from rabbitmq_resilience.sut.processes.version_homes import WrongBrokerError, at_home
from rabbitmq_resilience.tools.distributions import ToolMissingError, brokers_at_home, find_broker, named_broker
from rabbitmq_resilience.tools.erlang_support import known_series
from rabbitmq_resilience.tools.image_names import ImageNameError, broker_image

#: The errors of a broker that there is not.
NO_BROKER = (ToolMissingError, ImageNameError, WrongBrokerError)


def checked(config: pytest.Config, show: Callable[[str], None]) -> Callable[..., Result]:
    """Return a function that replaces ``play`` if scenarios are only checked.

    It plays nothing, and shows what would be done to a cluster that runs already. It fails the test if the requested
    version lacks what the scenario needs. It ends the session if there is no such broker, or if the folder for runs
    cannot be written.
    """
    try:
        require_writable(options.runs_folder(config))
    except OSError as error:
        give_up(config, f"no run can be recorded: {sentence(error)}")

    def check(
        scenario: Scenario,
        *,
        driver: str | None = None,
        broker: str | None = None,
        home: str | None = None,
        **_: object,
    ) -> Result:
        scenario, file = fitted(seeded(scenario, config), config), options.folder(config, "cluster")
        scenario = validated(scenario, driver=driver or options.driver(config))
        if file is not None:
            show(
                "\n".join(
                    [
                        f"WOULD DO {scenario.title}",
                        *provided("attached clusters").plan(scenario, file),
                        *noted(scenario),
                    ]
                )
            )
            raise Checked
        version, where = broker_of(scenario, config, driver=driver, broker=broker or home)
        if version is not None and not scenario.applies_to(version):
            pytest.skip(f"for RabbitMQ {scenario.broker}, this is {version}")
        if version is not None and (missing := lacking(version, scenario.needs)):
            pytest.fail(f"{scenario.title}: RabbitMQ {version} has no {', '.join(missing)}", pytrace=False)
        try:
            upgrades = upgrades_of(scenario, version, in_containers=(driver or options.driver(config)) == "docker")
        except (*NO_BROKER, UnsupportedUpgradeError) as error:
            pytest.fail(f"{scenario.title}: {error}", pytrace=False)
        places = "; ".join([where, *upgrades])
        show("\n".join([f"{'OK':<8} {scenario.title} ({places})", *noted(scenario)]))
        raise Checked

    return check


def require_writable(folder: Path) -> None:
    """Raise OSError if no folder can be made in ``folder``, which need not exist. Leave nothing there."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(existing)) from None


def broker_of(
    scenario: Scenario, config: pytest.Config, *, driver: str | None, broker: str | None
) -> tuple[str | None, str]:
    """Return the version on which a scenario would be played, and where its broker would come from.

    The version is None if it is known only when the scenario is played. End the session if there is no such broker.
    """
    wanted = broker or options.value(config, "broker")
    in_containers = (driver or options.driver(config)) == "docker"
    try:
        version, where, homes = _image(wanted) if in_containers else _home(wanted)
    except NO_BROKER as error:
        give_up(config, str(error))
        raise
    if homes:
        version, why_not = first_home([scenario], homes)
        where += f", as {why_not}" if why_not else ""
    return version, f"RabbitMQ {version}; {where}" if version else where


def upgrades_of(scenario: Scenario, version: str | None, *, in_containers: bool) -> list[str]:
    """Return the version of each broker that nodes of ``version`` are upgraded to, and where it would come from.

    Raise an error of ``NO_BROKER`` if there is no such broker, or if it lacks what the scenario needs, and
    UnsupportedUpgradeError if nodes cannot become one.
    """
    found, supported = [], []
    for need in sorted(scenario.needs):
        kind = next((kind for kind in (UPGRADE_TO, ANY_IMAGE) if need.startswith(kind)), None)
        if kind is None:
            continue
        wanted = need.removeprefix(kind)
        later, where, _ = _image(wanted) if in_containers else _home(wanted)
        found.append(f"upgraded to {later or wanted}; {where}")
        if kind == UPGRADE_TO and (known := later or wanted).replace(".", "").isdecimal():
            supported.append(known)
    if version is not None:
        require_supported(version, supported, scenario.needs)
    return found


def version_of(config: pytest.Config, wanted: str | None = None) -> str | None:
    """Return the version of a broker, by default of the one that the options name, without fetching it.

    Return None if only playing shows it. Raise an error of ``NO_BROKER`` if there is no such broker.
    """
    wanted = wanted or options.value(config, "broker")
    version, _, homes = _image(wanted) if options.driver(config) == "docker" else _home(wanted)
    return version or next(iter(homes), None)


def _image(wanted: str | None) -> tuple[str | None, str, list[str]]:
    """Return the version of an image, where it comes from, and the versions from which a scenario may choose.

    Raise ImageNameError if ``wanted`` names no image.
    """

    if wanted is None:
        return None, "as an image", list(IMAGES_AT_HOME)
    version = broker_image(wanted, there=()).version
    _require_known(version or wanted)
    return version, f"it is not checked whether there is an image of {wanted}; playing shows it", []


def _home(wanted: str | None) -> tuple[str | None, str, list[str]]:
    """Return the version of a broker on this machine, where it is, and the versions from which a scenario may choose.

    Raise ToolMissingError if there is no such broker.
    """

    if wanted is None and named_broker() is None:
        homes = [home.version for home in brokers_at_home()]
        return None, "at home" if homes else "no broker is here yet: rabbitmq-resilience setup", homes
    found = find_broker() if wanted is None else at_home(wanted)
    if found is not None:
        return found.version, "at home" if named_broker() is None and "/" not in str(wanted) else str(found.home), []
    assert wanted is not None, "a broker that is named by its folder is found, or missing"
    _require_known(wanted)
    return (
        wanted if wanted.count(".") > 1 else None,
        f"it is not checked whether there is a release {wanted}; it is fetched when played",
        [],
    )


def _require_known(version: str) -> None:
    """Raise ToolMissingError if this suite does not know the series of ``version``."""

    series = ".".join(version.split(".")[:2])
    if series.replace(".", "").isdecimal() and series not in known_series():
        first, *_, last = known_series()
        raise ToolMissingError(f"broker {version}: this suite knows no RabbitMQ {series}, only {first} to {last}")
