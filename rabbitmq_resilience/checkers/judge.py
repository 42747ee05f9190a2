"""Judge a run: check its assumptions first, then the invariants that do not depend on a failed one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rabbitmq_resilience.checkers.checker_catalogue import ASSUMPTIONS
from rabbitmq_resilience.checkers.verdict import Assumption, Checker, Finding, History, Verdict


@dataclass(frozen=True)
class Judgement:
    """The verdict of a run, with its findings by invariant and assumption."""

    verdict: Verdict
    findings: Mapping[str, Finding]
    assumptions: Mapping[str, Finding]

    @property
    def reason(self) -> str:
        """Return in one line why the run is not VALID; the findings that decided come first."""
        failed = {name: f for name, f in self.assumptions.items() if f.verdict is not Verdict.VALID}
        decided = {name: f for name, f in self.findings.items() if f.verdict is self.verdict is not Verdict.VALID}
        shown = {**failed, **decided} if self.verdict is Verdict.UNKNOWN else decided
        return "; ".join(f"{name}: {finding.summary}" for name, finding in shown.items())

    def as_dict(self) -> dict[str, Any]:
        """Return ``verdict``, ``invariants`` and ``assumptions`` as ``verdict.json`` holds them."""
        return {
            "verdict": str(self.verdict),
            "invariants": {name: _as_dict(finding) for name, finding in self.findings.items()},
            "assumptions": {name: _as_dict(finding) for name, finding in self.assumptions.items()},
        }


def judge(
    history: History, invariants: Mapping[str, Checker], assumptions: Mapping[str, Assumption] = ASSUMPTIONS
) -> Judgement:
    """Judge ``history``.

    An assumption that fails makes the whole run UNKNOWN, or only the invariants that do not forgive it; the others may
    still be INVALID (see ``Scope``). If a checker raises an error, its finding is UNKNOWN and shows the error.
    """
    assumed = {name: _checked(assumption, history) for name, assumption in assumptions.items()}
    failed = [name for name, finding in assumed.items() if finding.verdict is not Verdict.VALID]
    findings = {name: _checked(invariant, history) for name, invariant in invariants.items()}
    for name, finding in findings.items():
        missing = [f for f in failed if assumptions[f].scope != "run" and f not in invariants[name].forgives]
        if missing:
            findings[name] = _withdrawn(finding, missing)
    scopes = {assumptions[name].scope for name in failed}
    if "run" in scopes:
        return Judgement(Verdict.UNKNOWN, findings, assumed)
    verdicts = [f.verdict for f in findings.values()] + [Verdict.UNKNOWN] * ("invariants_and_valid" in scopes)
    return Judgement(_worst(verdicts), findings, assumed)


def _worst(verdicts: Collection[Verdict]) -> Verdict:
    """Return the worst verdict: INVALID before UNKNOWN before VALID. Without any verdict it is UNKNOWN."""
    if not verdicts:
        return Verdict.UNKNOWN
    return next(v for v in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID) if v in verdicts)


def _withdrawn(finding: Finding, missing: Collection[str]) -> Finding:
    return replace(
        finding,
        verdict=Verdict.UNKNOWN,
        summary=f"cannot be judged without {' and '.join(missing)}; in the observed time: {finding.summary}",
    )


def _checked(check: Checker | Assumption, history: History) -> Finding:
    try:
        finding = check.check(history)
    except Exception as error:
        return Finding(Verdict.UNKNOWN, f"the check itself failed: {type(error).__name__}: {error}")
    if finding.verdict is Verdict.VALID and finding.coverage is not None and not finding.coverage.judged:
        summary = f"nothing of what is demanded could be judged; in the observed time: {finding.summary}"
        return replace(finding, verdict=Verdict.UNKNOWN, summary=summary)
    return finding


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": str(finding.verdict),
        "summary": finding.summary,
        "numbers": dict(finding.numbers),
        "examples": list(finding.examples),
        "coverage": finding.coverage and finding.coverage.as_dict(),
    }
