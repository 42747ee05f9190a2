"""Generate the page of all options from their definitions, and from the conftest of this checkout.

.venv/bin/python -m rabbitmq_resilience.plugin.options_page > docs/options.md
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rabbitmq_resilience.plugin.options import ALSO_UNPREFIXED, OPTIONS
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.tools.locations import CHECKOUT

TEMPLATE = Path(__file__).parent / "templates" / "options.md.j2"

#: Longer descriptions than a line of help has room for.
_MORE: Mapping[str, str] = {
    "driver": "`processes` (or `local`) on loopback, `containers` (or `docker`)",
    "cluster": "play on the existing cluster that this [cluster file](clusters.md) describes",
    "broker": "a version or a series, such as `4.3`: with processes of a broker at home, with containers of its image, "
    "or the name of any image",
    "rabbitmq-home": "with processes: the broker to test, as the folder that holds `sbin/`",
    "erlang": "with processes: the Erlang to run it on, as the folder that holds `bin/erl`",
    "each-home": "play each scenario on each [broker at home](drivers-and-images.md#which-broker-is-played) that it is "
    "for, and not only on the first; if a broker is named, on that one",
    "runs-dir": "the folder for run directories",
    "nights-dir": "the folder for the [file of each night](nightly.md#the-file-of-a-night)",
    "night-name": "the name of this night, such as the name of a CI job; nights of one name are one series",
    "machine": "machines of the same name count as the same, such as those that a CI service lends",
    "summary": "append a [summary](nightly.md#the-summary) in Markdown to this file",
    "annotations": "`github` or `none`: show what broke as annotations",
    "budget-min": "play what fits into this number of minutes, least recently played first",
    "repeat": "play each scenario this often, and show how many runs had each verdict",
    "seed": "the seed that decides everything random; each report names its own",
    "check-only": "check every scenario, whether its broker is there and can play it, and the folder for runs; "
    "start nothing. With a cluster file: [list all that each would do there](clusters.md#before-anything-is-done)",
    "fault-file": "play the scenario in this file, and nothing else",
    "recheck": "judge the run in this directory again, without any broker",
    "upgrade-to": "the version, image or folder that `suites/test_upgrades.py` upgrades to, from that of `--broker`",
    "production-timing": "RabbitMQ's own `net_ticktime` of 60 s instead of 5 s, for the suites",
    "scale": "the part of the case study's load for kills, restarts and backlogs; 1 is all of it",
    "endurance-min": "for how many minutes the longest scenarios repeat rolling restarts",
    "budget-s": "for how many seconds random schedules are played; one that fails is shrunk for the same time again",
    "random-of": "draw random schedules for the scenario in this fault file",
}

_DEFAULTS: Mapping[str, str] = {
    "driver": "`processes`",
    "broker": "[the first at home that a scenario can be played on](drivers-and-images.md#which-broker-is-played)",
    "rabbitmq-home": "one at home",
    "erlang": "what lies next to the broker, then PATH, then one of those at home that RabbitMQ supports with it",
    "runs-dir": "`reports/runs`",
    "nights-dir": "none is written",
    "machine": "this machine alone",
    "annotations": "`github` in GitHub's Actions",
    "seed": "the scenario's own",
    "repeat": "`1`",
    "upgrade-to": "the next series: its official image, or its release",
}


class _Group:
    """A stand-in for pytest's parser and its groups that records the options added to it."""

    def __init__(self) -> None:
        self.added: dict[str, Mapping[str, Any]] = {}

    def getgroup(self, *_: str) -> _Group:
        return self

    def addoption(self, name: str, **fields: Any) -> None:
        self.added[name] = fields


def page() -> str:
    """Return the page, in Markdown."""
    *first, last = (f"`--{name}`" for name in ALSO_UNPREFIXED)
    return markdown(
        TEMPLATE,
        options=OPTIONS,
        more=_MORE,
        defaults={option.name: _DEFAULTS.get(option.name, "") for option in OPTIONS},
        unprefixed=f"{', '.join(first)} and {last}",
        checkout={name: _default(name, fields.get("default")) for name, fields in checkout_options().items()},
    )


def _default(name: str, stated: float | None) -> str:
    return _DEFAULTS.get(name, "" if stated is None else f"`{stated:g}`")


def checkout_options() -> Mapping[str, Mapping[str, Any]]:
    """Return the fields of each option that only the checkout's conftest adds, by the name of the option."""
    assert CHECKOUT is not None, "the page is made in a checkout"
    spec = importlib.util.spec_from_file_location("conftest_of_the_checkout", CHECKOUT / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    group = _Group()
    module.pytest_addoption(group)
    short = {option.name for option in OPTIONS}
    added = {name.removeprefix("--"): fields for name, fields in group.added.items()}
    return {name: fields for name, fields in added.items() if name not in short}


if __name__ == "__main__":
    print(page(), end="")
