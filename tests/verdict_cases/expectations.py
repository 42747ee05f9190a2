"""Cases of what a scenario expects, and of repeated runs."""

from __future__ import annotations

from tests.verdict_cases.builder import *  # noqa: F403


def expect_cases():
    from rabbitmq_resilience.play.judging import meets
    from rabbitmq_resilience.scenarios.expectations import Expectation, is_within

    def j(**v):
        worst = next(w for w in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID) if w in v.values())
        return Judgement(worst, {k: Finding(x, "") for k, x in v.items()}, {})

    VV, II, UU = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
    word = lambda b: "passes" if b else "fails"
    rec = Expectation(broker="<4", verdict="INVALID", invariant="recovery", always=False)
    case("expect recovery; recovery INVALID, no_loss INVALID", ("fails",), word(meets(j(recovery=II, no_loss=II), rec)))
    case(
        "expect recovery; recovery INVALID, no_loss UNKNOWN (nothing is known of losses)",
        ("fails",),
        word(meets(j(recovery=II, no_loss=UU), rec)),
    )
    case("expect recovery; all UNKNOWN", ("fails",), word(meets(j(recovery=UU, no_loss=UU), rec)))
    case("expect recovery in some runs; VALID", ("passes",), word(meets(j(recovery=VV, no_loss=VV), rec)))
    case("4.0.5 is within <4", ("no",), "yes" if is_within("4.0.5", "<4") else "no")
    case(
        "4.0.0-rc.1 is within <4 or >=4",
        ("one",),
        "one" if is_within("4.0.0-rc.1", "<4") != is_within("4.0.0-rc.1", ">=4") else "none or both",
    )
    case(
        "4.3.0-beta.2 is within <4.3 or >=4.3",
        ("one",),
        "one" if is_within("4.3.0-beta.2", "<4.3") != is_within("4.3.0-beta.2", ">=4.3") else "none or both",
    )
    case("3.10.8+2.gabc is within >=3.10.8", ("yes",), "yes" if is_within("3.10.8+2.gabc", ">=3.10.8") else "no")
    case("4.10.1 is within <4.3", ("no",), "yes" if is_within("4.10.1", "<4.3") else "no")
    c = cluster(version="4.3.0-beta.2")
    from rabbitmq_resilience.invariants.facts import Facts

    case(
        "4.3.0-beta.2 handles partitions (as the judge takes it)",
        ("no",),
        "yes" if Facts([c]).cluster.handles_partitions else "no",
    )


def tries_that_forget():
    from types import SimpleNamespace as NS
    from rabbitmq_resilience.play.repeats import runs, Repeats

    seq = iter([NS(verdict=Verdict.INVALID, as_expected=False), NS(verdict=Verdict.VALID, as_expected=True)])
    got = runs(lambda _: next(seq), repeat=1, tries=2)
    rep = Repeats(NS(reference=None, expected=lambda v: ()), got)
    case(
        "tries: 2, nothing expected but VALID; INVALID by no_loss, then VALID",
        ("fails",),
        "fails" if rep.unexpected else "passes",
    )
    import tempfile
    from pathlib import Path

    import yaml
    from rabbitmq_resilience.scenarios import fault_file

    d = Path(tempfile.mkdtemp()) / "x.fault.yaml"
    src = yaml.safe_load(Path("faults/examples/zone_cut_off.fault.yaml").read_text())
    src["topology"] = "three_nodes_three_zones"
    src["tries"] = 3
    src.pop("expect", None)
    d.write_text(yaml.safe_dump(src))
    try:
        fault_file.load(d, driver=None)
        took = "taken"
    except Exception as e:
        took = "refused"
    case("a fault file with tries: 3 that expects VALID only", ("refused",), took)
