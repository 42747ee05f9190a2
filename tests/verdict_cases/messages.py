"""Cases of losses, duplicates and order."""

from __future__ import annotations

from tests.verdict_cases.builder import *  # noqa: F403


def no_loss_plain():
    base = [cluster(), queues("q1", "q2"), phases(), load(10, 2), KILL(), seen(a1=[(20, 55, "down")])]
    ps, ds, n = talk(0, 89.9)
    case("all arrive", V, found("no_loss", hist(ps, ds, *base)))
    case(
        "one confirmed message of q2 is lost, q1 is whole",
        I,
        found(
            "no_loss",
            hist(*[a + b for a, b in zip(talk(0, 89.9)[:2], talk(0, 89.9, pub=1, q=1, lost={77})[:2])], *base),
        ),
    )
    case("returned and never received", V, found("no_loss", hist(ps + [publish(n, 89.7, R)], ds, *base)))
    case(
        "returned, and received all the same",
        V,
        found("no_loss", hist(ps + [publish(n, 89.7, R)], ds + [deliver(n, 89.8)], *base)),
    )
    case(
        "nacked, then published anew and received",
        V,
        found("no_loss", hist(ps + [publish(n, 89.7, N), publish(n + 1, 89.8)], ds + [deliver(n + 1, 89.9)], *base)),
    )
    case(
        "nacked, then published anew and lost",
        I,
        found("no_loss", hist(ps + [publish(n, 89.7, N), publish(n + 1, 89.8)], ds + [deliver(n, 89.9)], *base)),
    )
    case("unknown and lost", V, found("no_loss", hist(ps + [publish(n, 40, X)], ds, *base)))
    case(
        "never sent and received",
        I,
        found("no_loss", hist(ps + [publish(n, 40, Outcome.NEVER_SENT)], ds + [deliver(n, 41)], *base)),
    )
    case("confirmed after the drain had begun, and lost", I, found("no_loss", hist(ps + [publish(n, 90.5)], ds, *base)))
    case(
        "from another queue than it was sent to",
        I,
        found("no_loss", hist(ps, ds[:-1] + [deliver(n - 1, 89.8, queue=1, consumer=1)], *base)),
    )
    case("of a publisher that nobody knows", I, found("no_loss", hist(ps, ds + [deliver(0, 89.8, publisher=7)], *base)))
    case(
        "the one message confirmed by the dead node is lost",
        I,
        found("no_loss", hist(ps + [publish(n, 19.999) | {"node": 0}], ds, *base)),
    )
    q = [cluster(), queues("q1"), phases(), seen()]
    case(
        "all twice, unmarked, no fault",
        I,
        found("no_loss", hist(ps, ds + [deliver(k, 60 + k * 0.01) for k in range(50)], *q)),
    )
    case(
        "all twice, unmarked, the only step was skipped",
        I,
        found(
            "no_loss",
            hist(ps, ds + [deliver(k, 60 + k * 0.01) for k in range(50)], *q, fault(20, 20, states=("skipped",))),
        ),
    )


def order_cases():
    base = [cluster(), queues("q1", "q2"), phases(), load(10, 2), KILL(), seen(a1=[(20, 55, "down")])]
    ps, ds, n = talk(0, 89.9)
    sw = [dict(d) for d in ds]
    sw[100]["received_us"], sw[101]["received_us"] = ds[101]["received_us"], ds[100]["received_us"]
    case("two swapped", I, found("order", hist(ps, sw, *base)))
    sw2 = [dict(d) for d in sw]
    [d.update(redelivered=True) for d in sw2 if d["sequence"] == 100]
    case("two swapped, the earlier marked as redelivered", V, found("order", hist(ps, sw2, *base)))
    p2, d2, _ = talk(0, 89.9, pub=1, q=1)
    case(
        "q1 in order, q2 swapped",
        I,
        found("order", hist(ps + p2, ds + [d | {"consumer": 1, "publisher": 1, "queue": 1} for d in sw], *base)),
    )
    two = [d | {"consumer": k % 2} for k, d in enumerate(sw)]
    case("one queue, two consumers in turn, swapped: nobody can tell", U, found("order", hist(ps, two, *base)))
    case("the same, judged", I, found("order", hist(ps, two, *base), shared_queues="judged"))
    # publishers without confirms: 100 was written to the old connection, 101 to the new one; 100 came later
    ev = [
        replace(load(10, 2), in_flight=None, publishers=1),
        event(49, "worker", worker="publisher-0", event="started", node="a1"),
        event(50.2, "worker", worker="publisher-0", event="connection_lost", node="a1", detail="x"),
        event(50.3, "worker", worker="publisher-0", event="connected", node="b1"),
    ]
    b2 = [e for e in base if not isinstance(e, LoadEvent)]
    node = [p | {"node": 0 if p["sequence"] <= 100 else 1, "outcome_us": p["sent_us"]} for p in ps]
    case(
        "confirms: none: two swapped over a lost connection, which nothing promises",
        V + U,
        found("order", hist(node, sw, *b2, *ev)),
    )
    case(
        "confirms: none: two swapped within one connection",
        I,
        found(
            "order",
            hist(
                [p | {"outcome_us": p["sent_us"]} for p in ps],
                sw,
                *b2,
                replace(load(10, 2), in_flight=None, publishers=1),
            ),
        ),
    )
    # a message that was lost and found: a stranger with a huge number
    case(
        "a stranger with a high number (no_loss is INVALID in any case)",
        V + I,
        found("order", hist(ps, ds[:50] + [deliver(9999, 25.05)] + ds[50:], *base)),
    )


def one_side_for_all_queues():
    """autoheal: all nodes were away together, one side won: not c1 for one queue and a1 for the other."""
    ps, ds, n = talk(0, 89.9)
    p2, d2, m = talk(0, 89.9, pub=1, q=1)

    def run(lost):
        extra = [publish(n + k, 30 + k * 0.01, queue=0) | {"node": 2} for k in range(3)] + [
            publish(m + k, 30 + k * 0.01, publisher=1, queue=1) | {"node": 0} for k in range(3)
        ]
        got = [] if lost else [deliver(n + k, 31, consumer=0) for k in range(3)]
        return found(
            "no_loss",
            hist(
                ps + p2 + extra,
                ds + d2 + got,
                cluster(mode="autoheal"),
                queues("q1", "q2", kind="mirrored"),
                phases(),
                load(10, 4),
                fault(20, 50, cut=AC),
                node_states(unlike={k: [(52, 58, "paused")] for k in THREE}),
            ),
        )

    case("q1 lost what c1 confirmed, and q2 what a1 did", I, run(True))
    case("q2 alone lost what a1 confirmed", V, run(False))


if __name__ == "__main__":
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")]
