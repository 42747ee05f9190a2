"""Answers to many tried connections belong to the links over which they came."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker.erlang_modules import erlang_sources
from rabbitmq_resilience.sut.network.knocks import knocked
from rabbitmq_resilience.tools.distributions import BrokerHome, brokers_at_home

A_TO_B, A_TO_C, B_TO_A = Link("a1", "b1"), Link("a1", "c1"), Link("b1", "a1")
PORTS = {"a1": 25671, "b1": 25672, "c1": 25672}


def test_each_source_knocks_once_at_all_targets_of_a_port() -> None:
    asked: dict[str, Sequence[str]] = {}

    def run(source: str, words: Sequence[str]) -> str:
        asked[source] = words
        return "at-b1 1500\nat-b1 500\n" if source == "a1" else ""

    took = knocked(
        [A_TO_B, A_TO_C, B_TO_A],
        times=2,
        at_once=1,
        wait_s=0.5,
        counts="any",
        end_of=lambda link: (f"at-{link.target}", PORTS[link.target]),
        run=run,
    )
    assert took == {A_TO_B: [1.5, 0.5], A_TO_C: [], B_TO_A: []}
    assert asked == {
        "a1": ("25672", "2", "1", "500", "any", "at-b1", "at-c1"),
        "b1": ("25671", "2", "1", "500", "any", "at-a1"),
    }


def test_lines_that_are_no_answers_are_skipped() -> None:
    """A newer Erlang warns on standard output about what an older one compiles silently."""
    output = """\
probe:29:10: Warning: 'catch ...' is deprecated; please use 'try ... catch ... end' instead.
%   29|     case catch gen_tcp:connect(Address, Port, Family, Ms) of
%     |          ^
at-c1 30

at-b1 1500
"""
    took = knocked(
        [A_TO_B], times=1, at_once=1, wait_s=0.5, counts="any", end_of=lambda _: ("at-b1", 1), run=lambda *_: output
    )
    assert took == {A_TO_B: [1.5]}


@pytest.mark.core
@pytest.mark.parametrize("home", brokers_at_home(), ids=lambda home: str(home.version))
def test_each_erlang_compiles_the_modules_without_a_warning(home: BrokerHome, tmp_path: Path) -> None:
    command: list[str | Path] = [home.erlang_bin / "erlc", "-Werror", "-o", tmp_path, *erlang_sources()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
