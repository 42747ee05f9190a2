"""The one judgement of a run: assumptions first, then the invariants that they leave standing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rabbitmq_resilience.invariants.catalogue import ASSUMPTIONS
from rabbitmq_resilience.invariants.verdict import Assumption, Finding, History, Invariant, Verdict


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    findings: Mapping[str, Finding]
    assumptions: Mapping[str, Finding]

    @property
    def reason(self) -> str:
        """Why it is not VALID, in one line: what decided comes first."""
        failed = {name: f for name, f in self.assumptions.items() if f.verdict is not Verdict.VALID}
        decided = {name: f for name, f in self.findings.items() if f.verdict is self.verdict is not Verdict.VALID}
        told = {**failed, **decided} if self.verdict is Verdict.UNKNOWN else decided
        return "; ".join(f"{name}: {finding.summary}" for name, finding in told.items())

    def as_dict(self) -> dict[str, Any]:
        """``verdict``, ``invariants`` and ``assumptions`` as ``verdict.json`` holds them."""
        return {
            "verdict": str(self.verdict),
            "invariants": {name: _as_dict(finding) for name, finding in self.findings.items()},
            "assumptions": {name: _as_dict(finding) for name, finding in self.assumptions.items()},
        }


def judge(
    history: History, invariants: Mapping[str, Invariant], assumptions: Mapping[str, Assumption] = ASSUMPTIONS
) -> Judgement:
    """Judge ``history``. An assumption that fails makes the whole run UNKNOWN, or only the invariants that do not
    forgive it, while the others may still be INVALID (see ``Scope``). A checker that raises is UNKNOWN and tells its
    error."""
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
    told = [f.verdict for f in findings.values()] + [Verdict.UNKNOWN] * ("invariants_and_valid" in scopes)
    return Judgement(_worst(told), findings, assumed)


def _worst(verdicts: Collection[Verdict]) -> Verdict:
    """INVALID over UNKNOWN over VALID; a run that nothing was asked of is UNKNOWN."""
    if not verdicts:
        return Verdict.UNKNOWN
    return next(v for v in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID) if v in verdicts)


def _withdrawn(finding: Finding, missing: Collection[str]) -> Finding:
    return replace(
        finding,
        verdict=Verdict.UNKNOWN,
        summary=f"not to be told without {' and '.join(missing)}; as far as was seen: {finding.summary}",
    )


def _checked(check: Invariant | Assumption, history: History) -> Finding:
    try:
        finding = check.check(history)
    except Exception as error:
        return Finding(Verdict.UNKNOWN, f"the check itself failed: {type(error).__name__}: {error}")
    if finding.verdict is Verdict.VALID and finding.coverage is not None and not finding.coverage.judged:
        summary = f"nothing of what is demanded could be judged; as far as was seen: {finding.summary}"
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
