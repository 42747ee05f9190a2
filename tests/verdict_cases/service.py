"""Cases of availability, throughput, recovery and backlogs."""

from __future__ import annotations

from tests.verdict_cases.builder import *  # noqa: F403


def availability_cases():
    ps, ds, n = talk(0, 89.9)
    one = lambda silent, *ev, **kw: found(
        "availability", hist(*talk(0, 89.9, silent=silent)[:2], cluster(**kw), queues("q1"), phases(), load(10, 2), *ev)
    )
    K = [KILL(), seen(a1=[(20, 55, "down")])]
    case("stall of 19.5 s with one of three killed", V, one([(20, 39)], *K))
    case("stall of 21 s with one of three killed", I, one([(20, 41)], *K))
    case(
        "stall of 21 s in the cut, 4.3: the majority goes on",
        I,
        one([(20, 41)], fault(20, 50, cut=apart(["c1"], ["a1", "b1"])), node_states(), version="4.3.6"),
    )
    case(
        "stall of 25 s while a minority link flaps",
        I,
        one([(25, 50)], fault(20, 55, cut=apart(["c1"], ["a1", "b1"]), intermittent=True), node_states()),
    )
    case(
        "stall of 30 s after all is healed",
        I,
        one([(55, 85)], fault(20, 24, name="kill", down=["a1"]), seen(a1=[(20, 28, "down")])),
    )
    p2, d2, _ = talk(0, 89.9, pub=1, q=1, silent=[(30, 60)])
    case(
        "q1 goes on, q2 stands still for 30 s",
        I,
        found("availability", hist(ps + p2, ds + d2, cluster(), queues("q1", "q2"), phases(), load(10, 4), *K)),
    )
    nack = [p | ({"outcome": N} if 30 <= (p["sent_us"] - ORIGIN_US) / 1e6 < 60 else {}) for p in ps]
    case(
        "all is refused for 30 s",
        I,
        found("availability", hist(nack, [], cluster(), queues("q1"), phases(), load(10, 2), *K)),
    )
    # publishers without confirms: nothing is delivered of what is written for 40 s, as the queue stands still
    ld = replace(load(10, 2), in_flight=None, publishers=1)
    case(
        "confirms: none: writes are no confirms",
        U,
        found(
            "availability",
            hist(
                [p | {"outcome_us": p["sent_us"]} for p in ps],
                [d for d in ds if not 25 < (d["received_us"] - ORIGIN_US) / 1e6 < 85],
                cluster(),
                queues("q1"),
                phases(),
                ld,
                *K,
            ),
        ),
    )
    # kill of the only publisher, q2's goes on
    kc = [
        fault(30, 55, name="kill_client"),
        event(1, "worker", worker="publisher-0", event="started"),
        event(30, "worker", worker="publisher-0", event="killed"),
        event(55, "worker", worker="publisher-0", event="started"),
        node_states(),
    ]
    case("its publisher is killed for 25 s", V, one([(30, 56)], *kc))
    kc2 = [e for e in kc if not (isinstance(e, WorkerEvent) and e.t_us == us(55))] + [
        event(36, "worker", worker="publisher-0", event="started")
    ]
    case(
        "its publisher is back after 6 s, and nothing is confirmed for 26 s (15 of grace)",
        V,
        one([(30, 62)], fault(30, 36, name="kill_client"), *[e for e in kc2 if not isinstance(e, list)], node_states()),
    )


def rolling_restart_of_pods():
    """As rolling_restart tells its effect: each node may be away at any time. One at a time was seen away; the queue had
    a majority all the while, and confirmed nothing for ten minutes."""
    P = dict(steady=0.0, chaos=10.0, recovery=700.0, drain=760.0, end=765.0)
    roll = fault(20, 690, name="rolling_restart", down=THREE, intermittent=True)
    away = {"a1": [(30, 60, "down")], "b1": [(230, 260, "down")], "c1": [(430, 460, "down")]}

    def run(name, silent, unl=away, **b):
        ps, ds, _ = talk(0, 759.9, silent=silent)
        return found(
            name,
            hist(
                ps,
                ds,
                cluster(version="4.0.5"),
                queues("q1"),
                phases(**P),
                load(10, 2),
                roll,
                node_states(unlike=unl, end_s=765),
                *[sample(t + 0.3) for t in range(765)],
            ),
            **b,
        )

    case("rolling_restart: availability, all goes on", V, run("availability", []))
    case("rolling_restart: availability, nothing confirmed for 10 min", I + U, run("availability", [(70, 688)]))
    ps, ds, _ = talk(0, 759.9)
    tried = [
        p | ({"outcome": X, "outcome_us": p["sent_us"] + 10_000_000} if us(70) <= p["sent_us"] < us(688) else {})
        for p in ps
    ]
    got = [d for d in ds if not us(70) <= d["received_us"] < us(688.1)]
    case(
        "rolling_restart: the same, all that is tried for 10 min is unknown",
        I + U,
        found(
            "availability",
            hist(
                tried,
                got,
                cluster(version="4.0.5"),
                queues("q1"),
                phases(**P),
                load(10, 2),
                roll,
                node_states(unlike=away, end_s=765),
            ),
        ),
    )
    case("rolling_restart: throughput, nothing confirmed for 10 min", I + U, run("throughput", [(70, 688)]))
    case(
        "rolling_restart: no_crash, b1 ends by itself twice more",
        I + U,
        run("no_crash", [], {**away, "b1": [(230, 260, "down"), (300, 330, "down"), (600, 630, "down")]}),
    )
    case(
        "rolling_restart: partition_mode, b1 stands paused for 5 min long after its restart",
        I + U,
        run("partition_mode", [], {**away, "b1": [(230, 260, "down"), (330, 630, "paused")]}),
    )


def recovery_cases():
    base = [cluster(), queues("q1"), phases(), load(10, 2), KILL()]

    def rec(samples, *ev, unl=None, within=30):
        return found(
            "recovery",
            hist([], [], *base, *ev, node_states(unlike=unl or {"a1": [(20, 55, "down")]}), *samples),
            within_s=within,
        )

    S = lambda f: [e for t in range(95) for e in [f(t)] if e is not None]
    ok = lambda t: sample(t + 0.3, online=2 if 20 <= t < 56 else 3)
    case("whole after 6 s", V, rec(S(ok)))
    case("one member never comes back", I, rec(S(lambda t: sample(t + 0.3, online=2 if t >= 20 else 3))))
    case(
        "no leader in every tenth sample, for good",
        I + U,
        rec(
            S(
                lambda t: sample(
                    t + 0.3, leader=None if t % 10 == 0 and t > 50 else "a1", online=2 if 20 <= t < 56 else 3
                )
            )
        ),
    )
    case(
        "no leader in every ninth sample, for good",
        I,
        rec(
            S(
                lambda t: sample(
                    t + 0.3, leader=None if t % 9 == 0 and t > 50 else "a1", online=2 if 20 <= t < 56 else 3
                )
            )
        ),
    )
    case(
        "whole in time, and one node says to the end that it is partitioned",
        I,
        rec(S(lambda t: replace(ok(t), partitions={"b1": ["c1"]} if t > 60 else {}))),
    )
    case(
        "whole after 31 s, 30 allowed",
        I,
        rec(S(lambda t: sample(t + 0.3, online=2 if 20 <= t < 80 else 3)), unl={"a1": [(20, 81, "down")]}),
    )
    case("b1 is down from 88 s on", I + U, rec(S(ok), unl={"a1": [(20, 55, "down")], "b1": [(88, 95, "down")]}))
    two = [e for t in range(95) for e in [sample(t + 0.3, names=("q1", "q2"), online=2 if 20 <= t < 56 else 3)]]
    bad = [
        replace(e, queues={**e.queues, "q2": {**e.queues["q2"], "leader": None}}) if e.t_us > us(50) else e for e in two
    ]
    b2 = [cluster(), queues("q1", "q2"), phases(), load(10, 2), KILL(), seen(a1=[(20, 55, "down")])]
    case("q1 is whole, q2 has no leader to the end", I, found("recovery", hist([], [], *b2, *bad), within_s=30))
    gone = [replace(e, queues={"q1": e.queues["q1"]}) if e.t_us > us(50) else e for e in two]
    case("q1 is whole, q2 is not listed any more", I, found("recovery", hist([], [], *b2, *gone), within_s=30))
    # two overlapping faults: the last healed counts
    case(
        "overlapping kills: b1, healed last, comes back after 31 s",
        I,
        rec(
            S(lambda t: sample(t + 0.3, online=2 if 20 <= t < 90 else 3)),
            fault(40, 58, step=1, name="kill", down=["b1"]),
            unl={"a1": [(20, 52, "down")], "b1": [(40, 90, "down")]},
        ),
    )


def backlog_cases():
    def smp(t, *depths, names=("q1", "q2")):
        e = sample(t, names=names)
        return replace(
            e, queues={n: {**e.queues[n], "ready": d, "unacked": 0} for n, d in zip(names, depths) if d is not False}
        )

    def bl(f, **b):
        return found(
            "backlog",
            hist(
                [],
                [],
                cluster(),
                queues("q1", "q2"),
                phases(),
                load(10, 100),
                KILL(),
                seen(a1=[(20, 55, "down")]),
                *[smp(t, *f(t)) for t in range(95)],
            ),
            **{"drained_within_s": 10, **b},
        )

    case("grows, and is drained in 5 s", V, bl(lambda t: (3, 5000 if t == 50 else 2500 if 51 <= t < 54 else 3)))
    case("grows, and is never drained", I, bl(lambda t: (3, 5000 if t == 50 else 4000 if t > 50 else 3)))
    case("q2 holds 5000 messages to the end, all the same number", I, bl(lambda t: (3, 5000 if t >= 20 else 3)))
    case("q2 holds 5000 for 45 s, and is drained then", I, bl(lambda t: (3, 5000 if 20 <= t < 65 else 3)))
    case(
        "q2 holds 5000 for 45 s, falling by one a second, and is drained then",
        I,
        bl(lambda t: (3, 5000 - t if 20 <= t < 65 else 3)),
    )
    case(
        "q2 grew to 50,000, and is not listed any more",
        I + U,
        bl(lambda t: (3, 3 if t < 20 else 50_000 if t < 25 else False)),
    )
    case(
        "q2 is not listed from the fault on (nobody knows what it holds)", U, bl(lambda t: (3, 3 if t < 20 else False))
    )


def throughput_cases():
    def tp(parts, *ev, P=None, target=100, unl=None, end=95, **b):
        ps, n = [], 0
        for a, z, rate in parts:
            k = int((z - a) * rate)
            for i in range(k):
                ps.append(publish(n, a + i / rate))
                n += 1
        ph = phases(**P) if P else phases()
        return found(
            "throughput",
            hist(ps, [], cluster(), queues("q1"), ph, load(10, target), *ev, node_states(unlike=unl or {}, end_s=end)),
            **b,
        )

    K = [fault(20, 24, name="kill", down=["c1"])]
    un = dict(unl={"c1": [(20, 28, "down")]})
    case("throughput: kept", V, tp([(0, 90, 100)], *K, **un))
    case("throughput: 40 % from 50 on", I, tp([(0, 50, 100), (50, 90, 40)], *K, **un))
    case("throughput: 40 % from 50 to 70", I, tp([(0, 50, 100), (50, 70, 40), (70, 90, 100)], *K, **un))
    case("throughput: 0 from 85 on (the last window)", I + U, tp([(0, 85, 100)], *K, **un))
    case("throughput: 0 from 86 on (less than a window)", I + U + V, tp([(0, 86, 100)], *K, **un))
    case("throughput: steady never had its rate", U, tp([(0, 90, 50)], *K, **un))
    # faults in a row: no window is left; then nothing after
    many = [fault(t, t + 2, step=k, name="kill", down=["c1"]) for k, t in enumerate(range(12, 70, 12))]
    case(
        "throughput: faults in a row, 30 % all the while, whole at the end",
        I + U,
        tp(
            [(0, 10, 100), (10, 84, 30), (84, 90, 100)],
            *many,
            unl={"c1": [(t, t + 5, "down") for t in range(12, 70, 12)]},
        ),
    )


def seldom_used_queues():
    """Each queue gets a message every 25 s, each of which is confirmed after 5 ms; the bound is 20 s."""

    def run(every, **b):
        ps, ds, _ = talk(0, 89.9, every)
        p2, d2, _ = talk(0, 89.9, every, pub=1, q=1)
        return found(
            "availability",
            hist(
                ps + p2,
                ds + d2,
                cluster(),
                queues("q1", "q2"),
                phases(),
                load(10, 2 / every),
                KILL(),
                seen(a1=[(20, 55, "down")]),
            ),
            **b,
        )

    case("availability: a message every 25 s, all confirmed at once", V + U, run(25))
    case(
        "uptime of the same",
        V + U,
        found(
            "uptime",
            hist(*talk(0, 89.9, 25)[:2], cluster(), queues("q1"), phases(), load(10, 0.04), KILL(), node_states()),
            outage_s_max=10,
        ),
    )
