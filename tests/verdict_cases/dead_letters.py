"""Cases of dead letters and of single active consumers."""

from __future__ import annotations

from tests.verdict_cases.builder import *  # noqa: F403


def letters_cases():
    from rabbitmq_resilience.record.letters import Letters
    import numpy as np

    rej = lambda n: bool(Letters({0: (1,)}, 4).rejected(np.array([0]), np.array([n], np.uint32))[0])

    def dl(
        *ev,
        strategy="at_most_once",
        limited=False,
        one_in=4,
        drop=(),
        more=(),
        version="4.0.5",
        taking=("d1",),
        late=0.3,
        twice=(),
        again=(),
        kind="quorum",
        acks="manual",
        invariant="dead_letters",
        unreceived=(),
        every=0.5,
        **kw,
    ):
        ps, ds = [], []
        n, t = 0, 0.0
        while t < 89.9:
            ps.append(publish(n, t))
            if n not in unreceived:
                ds.append(deliver(n, t + 0.1))
            if rej(n):
                for k, q in enumerate(taking):
                    if (n, k) not in drop:
                        ds.append(deliver(n, t + late, queue=1 + k, consumer=1 + k))
            if n in twice:
                ds.append(deliver(n, t + 1, queue=1, consumer=1, again=n in again))
            n += 1
            t += every
        ds += list(more)
        names = ["q1", *taking]
        places = {q: {"type": kind, "members": list(THREE), "leader": "a1"} for q in names}
        q = event(
            0,
            "queues",
            queues=places,
            dead_letters={
                "queues": {"q1": list(taking)},
                "strategy": strategy,
                "reject_one_in": one_in,
                "limited": limited,
                "held_s": 0,
                "acks": acks,
            },
        )
        return found(
            invariant, hist(ps, ds, cluster(version=version), q, phases(), load(10, 2), *ev, node_states(**kw))
        )

    R_ = [n for n in range(180) if rej(n)]
    mid = [n for n in R_ if 120 < n < 140][0]
    plain = [n for n in range(140, 180) if not rej(n)]
    K = fault(20, 24, name="kill", down=["a1"])
    Kn = dict(unlike={"a1": [(20, 28, "down")]})
    case("letters: all come", V, dl(K, **Kn))
    case("letters: one never comes, 30 s after all is up again", I, dl(K, drop={(mid, 0)}, **Kn))
    case(
        "letters: at_least_once, one is lost in the fault",
        I,
        dl(K, strategy="at_least_once", drop={([n for n in R_ if 40 <= n < 56][0], 0)}, **Kn),
    )
    case(
        "letters: at_most_once, one is lost in the fault",
        V,
        dl(K, drop={([n for n in R_ if 40 <= n < 56][0], 0)}, **Kn),
    )
    case("letters: fan-out to two queues, the second lacks one", I, dl(K, taking=("d1", "d2"), drop={(mid, 1)}, **Kn))
    case("letters: nobody rejected it, no step", I, dl(more=[deliver(plain[0], 80, queue=1, consumer=1)]))
    case(
        "letters: 3.10, nobody rejected it, a step",
        I,
        dl(K, version="3.10.8", more=[deliver(plain[0], 80, queue=1, consumer=1)], **Kn),
    )
    case(
        "letters: 4.0, received once and not rejected, comes as one 50 s after the step",
        I,
        dl(K, more=[deliver(plain[0], 80, queue=1, consumer=1)], **Kn),
    )
    case(
        "letters: 4.0, all 30 others come as dead letters after a publisher was killed for 1 s at +20 s",
        I,
        dl(
            fault(20, 21, name="kill_client"),
            more=[deliver(n, 80 + k * 0.1, queue=1, consumer=1) for k, n in enumerate(plain)],
        ),
    )
    case(
        "letters: 4.0, rebalanced at +20 s; all 30 others come as dead letters 60 s later",
        I,
        dl(
            fault(20, 21, name="rebalance", operation=True),
            more=[deliver(n, 80 + k * 0.1, queue=1, consumer=1) for k, n in enumerate(plain)],
        ),
    )
    case("letters: one comes twice, unmarked, no step", I, dl(twice={mid}))
    case("letters: one comes twice, marked, no step", V, dl(twice={mid}, again={mid}))
    case(
        "letters: from the wrong queue",
        I,
        dl(K, taking=("d1",), drop={(mid, 0)}, more=[deliver(mid, 80, queue=0)], **Kn),
    )
    case(
        "letters: a message that never came out, then came as one (no limits)",
        I,
        dl(K, unreceived={plain[5]}, more=[deliver(plain[5], 80, queue=1, consumer=1)], **Kn),
    )
    case(
        "letters: limits, dropped and came as one",
        V,
        dl(K, limited=True, unreceived={plain[5]}, more=[deliver(plain[5], 80, queue=1, consumer=1)], **Kn),
    )
    case("letters: limits, dropped and came nowhere, 40 s after", I, dl(K, limited=True, unreceived={plain[5]}, **Kn))
    case(
        "no_loss: limits, dropped and came nowhere, 40 s after",
        I,
        dl(K, limited=True, unreceived={plain[5]}, invariant="no_loss", **Kn),
    )
    case(
        "letters: a rebalancing excuses nothing of 40 s later (at_most_once)",
        I,
        dl(fault(20, 21, name="rebalance", operation=True), drop={(mid, 0)}),
    )


def sac_cases():
    def worker(at, what, c=0):
        return event(at, "worker", worker=f"consumer-{c}", event=what)

    CON = [worker(0.5, w, c) for c in (0, 1) for w in ("started", "connected")]

    def sac(received, *ev):
        ds = [deliver(n, at, consumer=c) for n, (c, at) in enumerate(received)]
        return found(
            "single_active_consumer",
            hist(
                [publish(n, at - 0.1) for n, (_, at) in enumerate(received)],
                ds,
                cluster(),
                queues("q1"),
                phases(),
                node_states(),
                *CON,
                *ev,
            ),
        )

    case("sac: one all the time", V, sac([(0, t) for t in range(1, 90)]))
    case("sac: in turn", I, sac([(t % 2, t) for t in range(1, 90)]))
    case(
        "sac: takes over after a loss",
        V,
        sac(
            [(0 if t < 30 else 1, t) for t in range(1, 90)],
            worker(29.5, "connection_lost", 0),
            worker(31, "connected", 0),
        ),
    )
    case("sac: takes over, nothing tells why", U, sac([(0 if t < 30 else 1, t) for t in range(1, 90)]))
    case(
        "sac: in turn 40 s after a kill",
        I,
        sac([(0 if t < 70 else t % 2, t) for t in range(1, 90)], fault(20, 24, name="kill", down=["a1"])),
    )
