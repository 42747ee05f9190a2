"""Build literal histories whose truth is known by construction, and collect what the judge says of each.

(V)ALID, (I)NVALID, (U)NKNOWN: the verdicts that are right for a case.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace

from rabbitmq_resilience.invariants.catalogue import INVARIANTS
from rabbitmq_resilience.invariants.judge import Judgement, judge
from rabbitmq_resilience.invariants.verdict import Finding, Verdict
from rabbitmq_resilience.record.events import *  # noqa: F403
from rabbitmq_resilience.record.history import Outcome
from tests.invariants.literal import *  # noqa: F403

V, I, U = ("VALID",), ("INVALID",), ("UNKNOWN",)
C, N, R, X = Outcome.CONFIRMED, Outcome.NACKED, Outcome.RETURNED, Outcome.UNKNOWN


@dataclass(frozen=True)
class Case:
    """One case. ``truth``: the answers that are right; ``got``: what was answered."""

    title: str
    truth: tuple[str, ...]
    got: str

    @property
    def is_right(self) -> bool:
        return self.got in self.truth


_collected: list[Case] = []


def collected(cases) -> list[Case]:
    """Return the cases of a function, in their order."""
    _collected.clear()
    cases()
    return list(_collected)


def cases_of(module) -> list:
    """Return the functions of a module that are one or several cases each."""
    functions = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    return [f for f in functions if not inspect.signature(f).parameters]


def found(name, h, assumptions=None, **bounds):
    """Return the finding of the checker ``name`` on a history."""
    return judge(h, {name: INVARIANTS[name](**bounds)}, assumptions or {}).findings[name]


def case(title, truth, finding):
    """Collect a case: its finding, or a word."""
    _collected.append(Case(title, truth, str(getattr(finding, "verdict", finding))))


def talk(t0, t1, every=0.5, *, pub=0, q=0, lane=0, seq0=0, node=0, out=C, lost=(), late=0.1, silent=()):
    """One message each `every` s from t0 to t1, delivered `late` s after it; (publishes, deliveries, next sequence)."""
    ps, ds, n = [], [], seq0
    t = t0
    while t < t1 - 1e-9:
        if not any(a <= t < b for a, b in silent):
            ps.append(publish(n, t, out, publisher=pub, queue=q, lane=lane) | {"node": node})
            if out == C and n not in lost:
                ds.append(deliver(n, t + late, publisher=pub, queue=q, consumer=q))
            n += 1
        t += every
    return ps, ds, n


def hist(pubs, dels, *events, **kw):
    return history(
        sorted(pubs, key=lambda r: (r["publisher"], r["sequence"], r["lane"])),
        sorted(dels, key=lambda r: (r["consumer"], r["received_us"])),
        list(events),
        **kw,
    )


KILL = lambda a=20, b=50, n="a1", step=0, name="kill": fault(a, b, step=step, name=name, down=[n])


def seen(**unlike):
    return node_states(unlike=unlike)


# ---------------------------------------------------------------- no_loss


AC = apart(["c1"], ["a1", "b1"])


def pm(
    *ev,
    mode="pause_minority",
    version="3.10.8",
    nodes=THREE,
    kind="quorum",
    unl=None,
    pubs=(),
    end=95,
    members=None,
    P=None,
    **kw,
):
    return found(
        "partition_mode",
        hist(
            list(pubs),
            [],
            cluster(nodes, version=version, mode=mode, **kw),
            queues("q1", kind=kind, members=members or nodes),
            phases(**(P or {})),
            load(10, 2),
            *ev,
            node_states(nodes, unl or {}, end_s=end),
        ),
    )


def ms(name, rows, *ev, queues_=("q1",), unl=None, kind="quorum", drained=91.0, **b):
    extra = (
        [event(drained, "drain", complete=True, confirmed=1, received=1, unconsumed=0, detail="")] if drained else []
    )
    return found(
        name,
        hist(
            [publish(0, 1)],
            [deliver(0)],
            cluster(),
            queues(*queues_, kind=kind),
            phases(),
            load(10, 2),
            *ev,
            *extra,
            node_states(unlike=unl or {}),
            metrics=rows,
        ),
        **b,
    )
