"""Cases of partition modes, of confirms in a split, and of what they permit to be lost."""

from __future__ import annotations

from tests.verdict_cases.builder import *  # noqa: F403


def partition_mode_cases():
    cut = fault(20, 50, cut=AC)
    case("3.10: c1 pauses in time", V, pm(cut, unl={"c1": [(25, 52, "paused")]}))
    case("3.10: c1 never pauses", I, pm(cut))
    case("3.10: the majority pauses too", I, pm(cut, unl={"c1": [(25, 52, "paused")], "a1": [(26, 30, "paused")]}))
    case("3.10: c1 comes back in the middle of the cut", I, pm(cut, unl={"c1": [(25, 40, "paused")]}))
    case("4.3: nobody pauses", V, pm(cut, version="4.3.6"))
    case("4.3: c1 pauses", I, pm(cut, version="4.3.6", unl={"c1": [(25, 52, "paused")]}))
    case(
        "4.3: a quorum queue is confirmed through c1 alone",
        I,
        pm(cut, version="4.3.6", pubs=[publish(n, 30 + n * 0.5) | {"node": 2} for n in range(20)]),
    )
    case(
        "4.3: a quorum queue is confirmed through a1",
        V,
        pm(cut, version="4.3.6", pubs=[publish(n, 30 + n * 0.5) | {"node": 0} for n in range(20)]),
    )
    case("autoheal: c1 restarts", V, pm(cut, mode="autoheal", unl={"c1": [(52, 58, "paused")]}))
    case("autoheal: nobody restarts", I, pm(cut, mode="autoheal"))
    case("autoheal: all restart", I, pm(cut, mode="autoheal", unl={n: [(52, 58, "paused")] for n in THREE}))
    case(
        "autoheal: nobody restarts; c1 is killed 2 s before it is late",
        U + I,
        pm(cut, fault(78, 80, step=1, name="kill", down=["c1"]), mode="autoheal", unl={"c1": [(78, 84, "down")]}),
    )
    case(
        "autoheal: nobody restarts; b1 is killed for 1 s after 28 s and every 28 s",
        I + U,
        pm(cut, fault(78, 79, step=1, name="kill", down=["b1"]), mode="autoheal", unl={"b1": [(78, 82, "down")]}),
    )
    case("ignore: nobody pauses", V, pm(cut, mode="ignore"))
    case("ignore: c1 pauses", I, pm(cut, mode="ignore", unl={"c1": [(25, 52, "paused")]}))
    # two overlapping cuts: c1 | rest from 20 to 40, b1 | rest from 30 to 60: from 30 to 40 nobody has a majority
    BC = fault(30, 60, step=1, cut=apart(["b1"], ["a1", "c1"]))
    two = [fault(20, 40, cut=AC), BC]
    case(
        "overlapping cuts: all do as they must",
        V,
        pm(*two, unl={"c1": [(25, 63, "paused")], "b1": [(35, 62, "paused")], "a1": [(35, 63, "paused")]}),
    )
    case(
        "overlapping cuts: a1 never pauses, though alone from 30 to 60",
        I + V,
        pm(*two, unl={"c1": [(25, 63, "paused")], "b1": [(35, 62, "paused")]}),
    )
    case(
        "overlapping cuts: b1, cut off from all for 30 s, never pauses",
        I,
        pm(*two, unl={"c1": [(25, 63, "paused")], "a1": [(35, 63, "paused")]}),
    )
    F = apart(["a1", "a2"], ["b1", "b2"])
    case(
        "2 | 2: both sides pause", V, pm(fault(20, 50, cut=F), nodes=FOUR, unl={n: [(28, 53, "paused")] for n in FOUR})
    )
    case(
        "2 | 2: one side goes on",
        I,
        pm(fault(20, 50, cut=F), nodes=FOUR, unl={n: [(28, 53, "paused")] for n in FOUR[:2]}),
    )
    names = ("rabbit-0.rabbit.svc", "rabbit-1.rabbit.svc", "rabbit-2.rabbit.svc")
    cn = apart([names[2]], names[:2])
    case(
        "other names: the third pauses",
        V,
        pm(fault(20, 50, cut=cn), nodes=names, unl={names[2]: [(25, 52, "paused")]}, driver="attached"),
    )
    case("other names: the third does not", I, pm(fault(20, 50, cut=cn), nodes=names, driver="attached"))
    # publishers without confirms write to the side that is cut off: nobody confirmed anything
    ld = replace(load(10, 2), in_flight=None, publishers=1)
    h = lambda ld: found(
        "partition_mode",
        hist(
            [publish(n, 20.5 + n * 0.25) | {"node": 2} for n in range(12)],
            [],
            cluster(),
            queues("q1"),
            phases(),
            ld,
            cut,
            node_states(unlike={"c1": [(25, 52, "paused")]}),
        ),
    )
    wr = lambda ld: found(
        "partition_mode",
        hist(
            [publish(n, 20.5 + n * 0.25) | {"node": 2, "outcome_us": us(20.5 + n * 0.25)} for n in range(12)],
            [],
            cluster(),
            queues("q1"),
            phases(),
            ld,
            cut,
            node_states(unlike={"c1": [(25, 52, "paused")]}),
        ),
    )
    case("confirms: none: written to the minority, confirmed by nobody", V + U, wr(ld))
    case("confirms awaited: confirmed by the minority", I, h(load(10, 2)))


def confirmed_in_vain_of_shared_queues():
    """The only copy of q1 (classic) is on c1, which is cut off; a1 confirms messages to q1 alone all the while."""
    places = {
        "q1": {"type": "classic", "members": ["c1"], "leader": "c1"},
        "q2": {"type": "quorum", "members": list(THREE), "leader": "a1"},
    }

    def run(shared):
        ps = [publish(n, 30 + n * 0.5) | {"node": 0} for n in range(20)]
        if shared:
            ps += [publish(20, 5), publish(20, 5, queue=1, lane=1)]
        return found(
            "partition_mode",
            hist(
                ps,
                [],
                cluster(),
                event(0, "queues", queues=places),
                phases(),
                load(10, 2),
                fault(20, 50, cut=AC),
                node_states(unlike={"c1": [(25, 52, "paused")]}),
            ),
        )

    case("classic queue cut off, a1 confirms what goes to it alone", I, run(False))
    case("the same; one other message once went to q2 too", I, run(True))


def permits_after_the_split_is_mended():
    """c1 lost the split, restarted and serves again as part of the whole cluster; a later step takes it away once more.
    What it confirmed in between is on the others too."""
    P = dict(steady=0.0, chaos=10.0, recovery=150.0, drain=190.0, end=195.0)

    def run(mode, more, unl, lost_at, node=2, kind="mirrored", name="no_loss", cut=(20, 50)):
        ps, ds, n = talk(0, 189.9)
        ps.append(publish(n, lost_at) | {"node": node})
        return found(
            name,
            hist(
                ps,
                ds,
                cluster(mode=mode),
                queues("q1", kind=kind),
                phases(**P),
                load(10, 2),
                fault(*cut, cut=AC),
                *more,
                node_states(unlike=unl, end_s=195),
            ),
        )

    k = lambda a, b, step=1, n="c1", name="kill": fault(a, b, step=step, name=name, down=[n])
    case(
        "autoheal: c1 restarts at 52, confirms at 65, is killed at 70; that is lost",
        I,
        run("autoheal", [k(70, 72)], {"c1": [(52, 58, "paused"), (70, 76, "down")]}, 65),
    )
    case("the same without the kill", I, run("autoheal", [], {"c1": [(52, 58, "paused")]}, 65))
    case(
        "autoheal: the same, c1 is killed at 120",
        I,
        run("autoheal", [k(120, 122)], {"c1": [(52, 58, "paused"), (120, 126, "down")]}, 100),
    )
    case(
        "ignore: operators restart c1 at 58, it confirms at 75, is killed at 80; that is lost",
        I,
        run("ignore", [k(58, 62, name="stop"), k(80, 82, 2)], {"c1": [(58, 64, "down"), (80, 86, "down")]}, 75),
    )
    case(
        "ignore: operators restart c1 at 58, it confirms at 140, is killed at 145; that is lost",
        I,
        run("ignore", [k(58, 62, name="stop"), k(145, 147, 2)], {"c1": [(58, 64, "down"), (145, 151, "down")]}, 140),
    )
    case(
        "ignore: the same without the kill", I, run("ignore", [k(58, 62, name="stop")], {"c1": [(58, 64, "down")]}, 140)
    )
    case(
        "ignore: c1 was confirmed in the split, and is restarted",
        V,
        run("ignore", [k(58, 62, name="stop")], {"c1": [(58, 64, "down")]}, 40),
    )
    case(
        "ignore: a1, of the side that was kept, confirmed in the split; c1 is restarted at 58, and a1 and b1 are killed in turn at 100 and 120 (arguable)",
        I + V,
        run(
            "ignore",
            [k(58, 62, name="stop"), k(100, 102, 2, "a1"), k(120, 122, 3, "b1")],
            {"c1": [(58, 64, "down")], "a1": [(100, 106, "down")], "b1": [(120, 126, "down")]},
            40,
            node=0,
        ),
    )
    case(
        "autoheal: a1, of the side that won, confirmed in the split; c1 restarts at 52, and a1 and b1 are killed in turn at 60 and 75 (arguable)",
        I + V,
        run(
            "autoheal",
            [k(60, 62, 1, "a1"), k(75, 77, 2, "b1")],
            {"c1": [(52, 58, "paused")], "a1": [(60, 66, "down")], "b1": [(75, 81, "down")]},
            40,
            node=0,
        ),
    )
