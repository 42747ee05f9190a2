"""Cases of what brokers report of themselves: memory and messages without acknowledgement."""

from __future__ import annotations

from tests.verdict_cases.builder import *  # noqa: F403


def memory_cases():
    lim = [told("memory_limit", n, 1000) for n in THREE]
    use = lambda **f: [told("memory_used", n, f.get(n, 400)) for n in THREE]
    case("memory: all below", V, ms("memory", lim + use()))
    case("memory: b1 at 100.0 % once", I, ms("memory", lim + use(b1=lambda t: 1000 if t == 40 else 400)))
    case(
        "memory: b1 over it for 10 s, and one value of b1 is no number",
        I,
        ms("memory", lim + use(b1=lambda t: math.nan if t == 60 else 1500 if 40 <= t < 50 else 400)),
    )
    case("memory: b1 tells nothing for 20 s", U, ms("memory", lim + use(b1=lambda t: None if 40 <= t < 60 else 400)))
    case("memory: only a1 tells", U, ms("memory", [told("memory_limit", "a1", 1000), told("memory_used", "a1", 400)]))
    case(
        "memory: the alarm step is on a1, b1 is over it",
        I,
        ms(
            "memory",
            lim + use(a1=lambda t: 1500 if 20 <= t < 40 else 400, b1=lambda t: 1500 if 30 <= t < 35 else 400),
            fault(20, 40, name="alarm", alarm="memory", alarmed=["a1"]),
        ),
    )
    case(
        "memory: a1 is over it 20 s after the healing of its alarm",
        I,
        ms(
            "memory",
            lim + use(a1=lambda t: 1500 if 20 <= t < 60 else 400),
            fault(20, 40, name="alarm", alarm="memory", alarmed=["a1"]),
        ),
    )
    case(
        "memory: a limit of 0 without a step",
        I,
        ms("memory", [told("memory_limit", n, 0 if n == "b1" else 1000) for n in THREE] + use()),
    )


def unacked_cases():
    t2 = lambda q1, q2: [told("unacked", "a1", q1, queue="q1"), told("unacked", "a1", q2, queue="q2")]
    case("unacked: none at the end", V, ms("unacked", t2(0, lambda t: 0 if t > 60 else 5), queues_=("q1", "q2")))
    case("unacked: q2 holds 3 to the end", I, ms("unacked", t2(0, 3), queues_=("q1", "q2")))
    case(
        "unacked: q2 tells nothing after 80",
        U,
        ms("unacked", t2(0, lambda t: 0 if t < 80 else None), queues_=("q1", "q2")),
    )
    case(
        "unacked: a1 says 0 for q2, c1 says 3 at the same moments",
        I + U,
        ms(
            "unacked",
            [
                told("unacked", "a1", 0, queue="q1"),
                told("unacked", "a1", 0, queue="q2"),
                told("unacked", "c1", 3, queue="q2"),
            ],
            queues_=("q1", "q2"),
        ),
    )
    case(
        "unacked: c1 leads q2 and says 3 until 94; a1, which led it before, says 0 at 95",
        I + U,
        ms(
            "unacked",
            [
                told("unacked", "a1", 0, queue="q1"),
                told("unacked", "a1", 0, queue="q2"),
                told("unacked", "c1", 3, queue="q2", end_s=95),
            ],
            queues_=("q1", "q2"),
        ),
    )
    case(
        "unacked: 3 to the end, and the last value is no number",
        I + U,
        ms("unacked", [told("unacked", "a1", lambda t: math.nan if t == 95 else 3, queue="q1")]),
    )
