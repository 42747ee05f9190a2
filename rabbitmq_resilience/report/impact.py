"""Describe in words what a run cost its clients, from ``consequences`` in the content of its verdict.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.tools.percentages import percent_text

#: From this part of a confirm's time on, the network counts as the cause of a late confirm.
NETWORK_RATIO = 0.5


@dataclass(frozen=True)
class QueueRow:
    """The outages of one queue, as a page shows them."""

    name: str
    count: int
    longest: str
    total: str
    part: str


def longest_outage_s(verdict: Mapping[str, Any]) -> float | None:
    """Return the longest outage of any queue in seconds; 0 if none was long enough; None if it is not known."""
    found = verdict.get("consequences")
    return None if not found else max((queue["longest_s"] for queue in found["queues"].values()), default=0.0)


def longest_of(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Return the longest outage of several runs, such as "outages up to 40.1 s"; empty if it is not known."""
    known = [length_s for verdict in verdicts if (length_s := longest_outage_s(verdict)) is not None]
    if not known:
        return ""
    return f"outages up to {max(known):.1f} s" if max(known) else "no outage"


def outage_text(verdict: Mapping[str, Any]) -> str:
    """Return the longest outage of a run with its queue, such as "longest outage 40.1 s (q1)"; empty if not known."""
    length_s = longest_outage_s(verdict)
    if length_s is None:
        return ""
    worst = verdict["consequences"]["worst"]
    return f"longest outage {length_s:.1f} s ({worst[0]['queue']})" if worst else "no outage"


def impact(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences for people, the worst first; none if nothing is known."""
    found = verdict.get("consequences")
    if not found:
        return
    worst, whole = found["worst"], found["outages"]
    if not worst:
        yield "No queue had an outage of a second or longer while messages were sent to it."
    else:
        first = worst[0]
        yield (
            f"{first['queue']} confirmed nothing for {first['lasts_s']:.1f} s from +{first['start_s']:.1f} s on, "
            f"{first['beside']}: the longest outage of a queue."
        )
    if whole["count"]:
        yield (
            f"All queues together confirmed nothing for {whole['longest_s']:.1f} s at the longest and "
            f"{whole['total_s']:.1f} s in all, {percent_text(whole['ratio'])} of the time of publishing."
        )
    publishers, consumers = found["publishers"], found["consumers"]
    refused = (("was blocked", "blocked"), ("got nacks", "nacked"), ("had no connection", "disconnected"))
    yield from _lengths("Some publisher", [(words, publishers[name]) for words, name in refused])
    missed = (("received nothing, though messages were due,", "without"), ("had no connection", "disconnected"))
    yield from _lengths("Consumers of some queue", [(words, consumers[name]) for words, name in missed])
    if returned := found.get("returned"):
        yield f"{returned['messages']:,} of {returned['of']:,} messages were returned as unroutable: no queue got them."
    yield from _held_back(found.get("held_back") or {})
    if network := found.get("network"):
        yield network_text(network)


def network_text(measured: Mapping[str, Any]) -> str:
    """Return in words whether the network or RabbitMQ was slow, from the result of ``checkers.network``."""
    trips = "; ".join(
        f"{kind} {_ms(found['mean_ms'])} on average and {_ms(found['p99_ms'])} at p99"
        + (f", {found['lost']} lost" if found["lost"] else "")
        for kind, found in measured["round_trips"].items()
        if found["answered"] or found["lost"]
    )
    if measured["slowest_ms"] is None:
        return f"Nothing was confirmed. Raw round trips over the same ways: {trips}."
    return (
        f"Half of all confirms came within {_ms(measured['median_ms'])}. The slowest 1 % took "
        f"{_ms(measured['slowest_ms'])} and more. {_cause(measured)} Raw round trips: {trips}."
    )


def _cause(measured: Mapping[str, Any]) -> str:
    """Return in words which part of the slowest confirms the network had, and what the cause was."""
    usual, most = measured["network_ratio"], measured.get("network_ratio_max", measured["network_ratio"])
    if usual is None:
        return "No raw round trips were measured then, so the cause is not known."
    if most < NETWORK_RATIO:
        return (
            f"Raw round trips of the same time make up {percent_text(most)} of that at most: the cause was RabbitMQ, "
            "or the machine under it, and not the network."
        )
    if usual >= NETWORK_RATIO:
        return f"Raw round trips of the same time make up {percent_text(usual)} of that: the cause was the network."
    return (
        f"Raw round trips of the same time usually make up {percent_text(usual)} of that, and {percent_text(most)} at "
        "most: the cause may be the network, or RabbitMQ or the machine under it."
    )


def _held_back(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if brokers reported any connection or queue in flow, or any connection blocked."""
    parts = [
        f"{found[name]['most']:,} {words} at once at the most, and some in {percent_text(found[name]['ratio'])} of the "
        "looks"
        for name, words in (
            ("flow", "connections in flow"),
            ("blocked", "connections blocked"),
            ("queues", "queues in flow"),
        )
        if found and found[name]["most"]
    ]
    if parts:
        yield f"Brokers reported {'; '.join(parts)}; there were {found['connections']:,} connections."


def _ms(ms: float | None) -> str:
    return "no time" if ms is None else f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1000:.3g} s"


def queue_rows(verdict: Mapping[str, Any]) -> list[QueueRow]:
    """Return the rows of the queues with outages, the worst first."""
    queues = (verdict.get("consequences") or {}).get("queues", {})
    return [
        QueueRow(name, row["count"], f"{row['longest_s']:.1f} s", f"{row['total_s']:.1f} s", percent_text(row["ratio"]))
        for name, row in sorted(queues.items(), key=lambda item: (-item[1]["total_s"], item[0]))
    ]


def _lengths(subject: str, parts: Iterable[tuple[str, Mapping[str, float]]]) -> Iterator[str]:
    """Yield a sentence on the parts that lasted for a tenth of a second or longer, if there are any."""
    texts = []
    for words, found in parts:
        if found["longest_s"] >= 0.1:
            longest, whole = f"{found['longest_s']:.1f} s", f"{found['total_s']:.1f} s"
            texts.append(f"{words} for {longest}" + (f" at the longest and {whole} in all" if whole != longest else ""))
    if texts:
        yield f"{subject} {', '.join(texts)}."
