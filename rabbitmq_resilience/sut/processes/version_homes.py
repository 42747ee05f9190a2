"""Find the broker of a version, for nodes that run as processes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.tools import releases
from rabbitmq_resilience.tools.distributions import BrokerHome, brokers_at_home, find_broker, named_broker
from rabbitmq_resilience.tools.locations import OPTION
from rabbitmq_resilience.tools.progress import Failed


class WrongBrokerError(Exception):
    """The driver has no such broker. The text says what to request instead."""


def of_version(wanted: str) -> BrokerHome:
    """Return the broker in a folder, or of a version or a series, such as 4.3.

    The candidates are the broker that RABBITMQ_HOME names, an installed broker, and RabbitMQ's own release, which is
    downloaded. Raise WrongBrokerError if there is none, and ToolMissingError if there is no Erlang for it.
    """
    found = at_home(wanted)
    if found is not None:
        return found
    try:
        return find_broker(releases.provide(wanted if wanted.count(".") > 1 else releases.newest(wanted)))
    except Failed as error:
        raise _wrong(wanted, brokers_at_home(), f"RabbitMQ's release could not be downloaded: {error}") from error


def at_home(wanted: str) -> BrokerHome | None:
    """Return the broker in a folder, or this machine's broker of a version or a series. Return None if RabbitMQ's own
    release must be downloaded. Raise WrongBrokerError or ToolMissingError as ``of_version`` does."""
    if "/" in wanted:
        return find_broker(Path(wanted))
    there = brokers_at_home() if named_broker() is None else [find_broker()]
    if not re.fullmatch(r"\d+\.\d+(\.\d+(-\w+\.\d+)?)?", wanted):
        raise _wrong(wanted, there, "It is neither a version, such as 4.2.2, nor a series, such as 4.2")
    for home in there:
        if f"{home.version}.".startswith(f"{wanted}."):
            return home
    if named_broker() is not None:
        raise _wrong(wanted, there, "RABBITMQ_HOME names another broker")
    return None


def _wrong(wanted: str, there: Sequence[BrokerHome], why: str) -> WrongBrokerError:
    known = ", ".join(f"{home.version} ({home.home})" for home in there) or "none"
    return WrongBrokerError(
        f"{OPTION}broker {wanted}: brokers at home, for processes: {known}. {why}. Name a broker by its folder "
        f"({OPTION}rabbitmq-home), or take {OPTION}driver containers, which has versions as images"
    )
