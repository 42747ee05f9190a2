"""How a run is expected to end if RabbitMQ is known to break a promise, and what may excuse that."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, Field, model_validator

from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.model.base import Spec, as_tuple
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.traces import FINDINGS_TRACES, TRACES


def _specifiers(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no range of versions; write it as '>=3.8,<4.3'") from error
    return text


def _regular_expression(text: str) -> str:
    try:
        re.compile(text, re.DOTALL)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


def _trace(name: str) -> str:
    if name not in {**TRACES, **FINDINGS_TRACES}:
        raise ValueError(f"{name!r} is no trace; there are {', '.join([*TRACES, *FINDINGS_TRACES])}")
    return name


QueueType = Literal["quorum", "mirrored", "classic"]
VersionRange = Annotated[str, AfterValidator(_specifiers)]
#: The most important promises: a verdict alone never excuses a breach.
PROMISED_MOST = frozenset({"no_loss", "order"})


#: The spelling of version 0.1, and the present one.
FORMER_SPELLING = {"also": "invariants_also", "always": "intermittent"}


def present_spelling(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an expectation in the present spelling. Raise ValueError if one is there in both."""
    # A strict tuple takes no list, which a file has.
    found = {field: as_tuple(value) for field, value in stated.items()}
    for former in FORMER_SPELLING.keys() & found.keys():
        present, value = FORMER_SPELLING[former], found.pop(former)
        if present in found:
            raise ValueError(f"{former} is called {present} now, which is there too: leave {former} out")
        found[present] = not value if former == "always" and isinstance(value, bool) else value
    return found


class Expectation(Spec):
    """The verdict that broker versions in ``broker`` are known to give, with queues of one of ``queue_types`` (by
    default of any). ``invariant`` is the invariant that they break, and ``invariants_also`` names those that may break
    as a consequence. They break in each run or, with ``intermittent: true``, in some runs while the others are VALID.
    If another invariant is UNKNOWN, so is the run. Several known defects may meet in one run, in which each excuses its
    own invariants. One without a trace counts there only if its ``invariant`` is no consequence of another.

    An expectation that excuses ``no_loss`` or ``order`` must exclude any other loss. A defect is identified by its
    trace, and by its versions and queue types. ``log`` is a regular expression that matches the trace in some broker's
    log (``.`` matches line ends too). ``trace`` names a trace in which times matter (``decides_anew``, ``pauses_late``,
    ``never_pauses``, ``waits_to_pause``, ``starts_apart``, ``resumes_apart``, ``leads_while_pausing``), or one in the
    findings (``refuses_messages``: a queue that stood still refused the messages sent to it; ``loses_with_power``: each
    lost message had been sent before a power cut, to a queue on a node without power; ``forgets_queues_with_power``:
    each had been sent before all nodes lost power, to a queue that no broker lists afterwards; ``forgets_with_power``:
    each lost declaration was asked for before all nodes lost power; ``all_mirrors_were_away``: all nodes with a copy of
    a mirrored queue were away at one moment after each lost message was sent). A loss by design, as with settings that
    promise nothing, names the ``documentation`` that says so.
    """

    broker: VersionRange
    verdict: Verdict
    invariant: str | None = None
    invariants_also: tuple[str, ...] = ()
    reference: str | None = None
    intermittent: bool = False
    queue_types: tuple[QueueType, ...] = ()
    log: Annotated[str, AfterValidator(_regular_expression)] | None = None
    trace: Annotated[str, AfterValidator(_trace)] | None = None
    documentation: Annotated[str, Field(min_length=1, max_length=500)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _former_spelling(cls, stated: Any) -> Any:
        return present_spelling(stated) if isinstance(stated, dict) else stated

    @property
    def excuses(self) -> frozenset[str]:
        """Return the invariants that may be broken."""
        return frozenset({*([self.invariant] if self.invariant is not None else []), *self.invariants_also})

    @property
    def has_trace(self) -> bool:
        return self.log is not None or self.trace is not None

    @property
    def excuses_promises(self) -> bool:
        return bool(PROMISED_MOST & self.excuses)

    def leaves_trace(self, log: str) -> bool:
        """Return whether one log has the trace that is named; True if no trace in a log is named."""
        by_log = self.log is None or re.search(self.log, log, re.DOTALL) is not None
        trace = TRACES.get(self.trace or "")
        return by_log and (trace is None or trace(log))

    def is_shown_by(self, findings: Mapping[str, Finding], logs: Callable[[], Iterable[str]]) -> bool:
        """Return whether the named traces are there: in the findings, and in one of the logs."""
        trace = FINDINGS_TRACES.get(self.trace or "")
        if trace is not None and not trace(findings):
            return False
        of_logs = self.log is not None or self.trace in TRACES
        return not of_logs or any(map(self.leaves_trace, logs()))

    @model_validator(mode="after")
    def _consequences(self) -> Self:
        if self.invariants_also and self.invariant is None:
            raise ValueError("invariants_also names what breaks as a consequence: say of which invariant")
        return self

    def __str__(self) -> str:
        by = f" by {self.invariant}" if self.invariant else ""
        return f"{self.verdict}{by}{' in some runs' if self.intermittent else ''}"


VALID_EXPECTED = Expectation(broker="", verdict=Verdict.VALID)


def is_within(version: str, versions: str) -> bool:
    """Return whether a version is in a range.

    A pre-release counts as its release, whose features it has. Only if the range itself names a pre-release, the two
    are compared as they are written.
    """
    asked, found = SpecifierSet(versions), Version(version)
    return asked.contains(found if asked.prereleases else Version(found.base_version), prereleases=True)


def excuse_problems(expected: Sequence[Expectation], demanded: Collection[str]) -> Iterator[tuple[Location, str]]:
    """Yield the expectations that would let a run pass although it shows nothing, or another defect than the known
    one."""
    for i, expectation in enumerate(expected):
        if expectation.verdict is Verdict.UNKNOWN:
            text = "UNKNOWN is no verdict that could be expected: the run would pass and show nothing"
            yield (
                ("expect", i, "verdict"),
                f"{text}; if some versions cannot be judged, leave them out of the scenario's broker: '>=3.9'",
            )
        if expectation.verdict is not Verdict.INVALID or expectation.documentation is not None:
            continue
        excused = PROMISED_MOST & (expectation.excuses or frozenset(demanded))
        broken = " and ".join(sorted(excused))
        if excused and expectation.log is None and expectation.trace not in TRACES:
            text = f"this excuses {broken}, and any cause would pass for the known one"
            ways = "name its trace (log: a regular expression, or trace: pauses_late)"
            yield ("expect", i), f"{text}; {ways}, or, if it is lost by design, the documentation: that says so"
        elif excused and not (expectation.broker and expectation.queue_types):
            lacking = "broker" if not expectation.broker else "queue_types"
            hint = {"broker": "'<4'", "queue_types": "[mirrored]"}[lacking]
            yield ("expect", i, lacking), f"this excuses {broken}: say which have the defect, such as {lacking}: {hint}"
