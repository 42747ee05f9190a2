"""Find traces of known defects in the brokers' logs if a regular expression is not enough, because times matter. Also
find traces in the findings.

Each trace is one function of the text of one log, or of all findings. An expectation gives its name in ``trace``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from rabbitmq_resilience.checkers.mirror_losses import WITH_A_MIRROR_UP
from rabbitmq_resilience.checkers.pauses import NET_SETUPTIME_S
from rabbitmq_resilience.checkers.power_losses import FROM_LISTED_QUEUES, WITHOUT_POWER_CUT
from rabbitmq_resilience.checkers.stalls import REFUSED_MIN
from rabbitmq_resilience.checkers.verdict import Finding

Trace = Callable[[str], bool]
FindingsTrace = Callable[[Mapping[str, Finding]], bool]

#: ``2022-01-02 03:04:05.678901+00:00 [info] <0.1.0> text``, since 3.9; before that in ms and without a zone.
_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3,6})\S* \[\w+\] \S+ (.*)$", re.MULTILINE)

_PEER_LOST = re.compile(r"\*\* Node \S+ not responding|node \S+ down: |.*Promoting mirror")
_PAUSES = "Cluster minority/secondary status detected"
_STOPS_OR_STARTS = "RabbitMQ is asked to"
#: Of 120 timely pauses of 3.8.9 and 3.10.8, the latest came 0.53 s after the first peer was lost.
LATE_S = 2.0

_BROKER_SEEN = re.compile(r"rabbit on node '?([\w@.-]+?)'? (up|down)$")
_PEER_UNREACHABLE = re.compile(r"node '?([\w@.-]+?)'? down: ")
_RAN_APART = re.compile(r"running_partitioned_network,\s*'?([\w@.-]+?)'?\}")
_STARTS, _STARTED = " Starting RabbitMQ", "Server startup complete"

#: Nodes of 4.0 that paused in time had waited for less than this.
WAITED_S = 2 * NET_SETUPTIME_S

#: A node that was frozen learns of everything that happened meanwhile within this time.
RESUMED_S = 1.0

_PEER_BACK = re.compile(r"node '?([\w@.-]+?)'? up$")
_PROMOTES = "Promoting mirror"
_HAS_STOPPED = ("Successfully stopped RabbitMQ", "RabbitMQ is asked to start", " Starting RabbitMQ")

_DECIDES = "Autoheal decision"
#: After these lines there may be a new split: a peer was lost, or the node was not there to log it.
_MAY_BE_PARTED = re.compile(r"node \S+ down: |\*\* Node \S+ not responding|\s*Starting RabbitMQ \d")
#: A restart takes some seconds, and requests are ignored until it is over. Noticing a new cut, and its end, takes
#: longer, except for cuts that close connections and for a net_ticktime of a few seconds.
AGAIN_WITHIN_S = 15.0


def pauses_late(log: str) -> bool:
    """Return whether the node lost a peer and went on for ``LATE_S`` or longer before it found itself in a minority. It
    waited for a connection to another peer (``net_setuptime``)."""
    lost_s: float | None = None
    for at_s, text in _lines(log):
        if text.startswith(_STOPS_OR_STARTS):
            lost_s = None
        elif text.startswith(_PAUSES) and lost_s is not None and at_s - lost_s >= LATE_S:
            return True
        elif lost_s is None and _PEER_LOST.match(text):
            lost_s = at_s
    return False


def never_pauses(log: str) -> bool:
    """Return whether the node was without a peer for ``NET_SETUPTIME_S`` or longer, and did not pause before it saw
    that peer again.

    It lost the broker of that peer, and took the peer itself for unreachable only after Mnesia had reported that the
    two had run separately. Its node monitor had first waited for another silent peer, until the cut was over.
    """
    lost_s: dict[str, float] = {}
    apart: set[str] = set()
    pauses = False
    for at_s, text in _lines(log):
        if text.startswith((_PAUSES, *_HAS_STOPPED)):
            pauses = text.startswith(_PAUSES)
            lost_s, apart = {}, set()
        elif pauses:
            continue
        elif match := _BROKER_SEEN.match(text):
            peer, seen = match.groups()
            lost_s.pop(peer, None) if seen == "up" else lost_s.setdefault(peer, at_s)
        elif match := _RAN_APART.search(text):
            apart.add(match[1])
        elif match := _PEER_UNREACHABLE.match(text):
            peer = match[1]
            if peer in apart and at_s - lost_s.get(peer, at_s) >= NET_SETUPTIME_S:
                return True
            apart.discard(peer)
    return False


def waits_to_pause(log: str) -> bool:
    """Return whether the node lost the broker of a peer, and found itself in a minority only ``WAITED_S`` later.

    It had not seen that peer in between: its node monitor had waited for one silent peer after another.
    """
    lost_s: dict[str, float] = {}
    for at_s, text in _lines(log):
        if text.startswith(_PAUSES):
            if any(at_s - since_s >= WAITED_S for since_s in lost_s.values()):
                return True
            lost_s = {}
        elif text.startswith(_HAS_STOPPED):
            lost_s = {}
        elif match := _BROKER_SEEN.match(text):
            peer, seen = match.groups()
            lost_s.pop(peer, None) if seen == "up" else lost_s.setdefault(peer, at_s)
    return False


def resumes_apart(log: str) -> bool:
    """Return whether the node lost a peer and its broker, saw the peer again within ``RESUMED_S``, and did not pause.

    The peer's broker had run separately. The node was frozen for longer than ``net_ticktime``, and its peers were back
    before it could count them."""
    lost_s: dict[str, float] = {}
    apart: set[str] = set()
    for at_s, text in _lines(log):
        if text.startswith((_PAUSES, *_HAS_STOPPED)):
            lost_s, apart = {}, set()
        elif match := _RAN_APART.search(text):
            apart.add(match[1])
        elif (match := _BROKER_SEEN.match(text)) and match[2] == "down":
            lost_s.setdefault(match[1], at_s)
        elif (match := _PEER_BACK.match(text)) and match[1] in apart:
            if at_s - lost_s.pop(match[1], at_s - 2 * RESUMED_S) <= RESUMED_S:
                return True
            apart.discard(match[1])
    return False


def starts_apart(log: str) -> bool:
    """Return whether the node started without seeing the broker of any peer, served, and later met a peer that had run
    separately. It was cut off while it started, and did not pause."""
    alone = started = False
    for _, text in _lines(log):
        if text.startswith(_STARTS):
            alone, started = True, False
        elif text.startswith(_PAUSES):
            alone = False
        elif text.startswith(_STARTED):
            started = True
        elif (match := _BROKER_SEEN.match(text)) and match[2] == "up" and not started:
            alone = False
        elif _RAN_APART.search(text) and alone and started:
            return True
    return False


def leads_while_pausing(log: str) -> bool:
    """Return whether the node found itself in a minority, and then saw a peer again and became the leader of a queue
    before it had stopped. A node takes a second or more to stop, and goes on meanwhile."""
    saw: set[str] | None = None
    for _, text in _lines(log):
        if text.startswith(_PAUSES):
            saw = saw or set()
        elif text.startswith(_HAS_STOPPED):
            saw = None
        elif saw is not None:
            saw |= {"peer"} if _PEER_BACK.match(text) else {"lead"} if _PROMOTES in text else set()
            if saw == {"peer", "lead"}:
                return True
    return False


def decides_again(log: str) -> bool:
    """Return whether the node that decides under autoheal decided twice about the same split. It had lost no peer
    meanwhile, or the second decision came too soon for a new split."""
    decided_s: float | None = None
    parted = False
    for at_s, text in _lines(log):
        if text.startswith(_DECIDES):
            if decided_s is not None and (not parted or at_s - decided_s <= AGAIN_WITHIN_S):
                return True
            decided_s, parted = at_s, False
        elif _MAY_BE_PARTED.match(text):
            parted = True
    return False


def refuses_messages(findings: Mapping[str, Finding]) -> bool:
    """Return whether each queue that stood still for too long answered its publishers, and refused their messages."""
    found = findings.get("availability")
    ratio = found.numbers.get("refused_ratio") if found is not None else None
    return isinstance(ratio, int | float) and ratio >= REFUSED_MIN


def loses_with_power(findings: Mapping[str, Finding]) -> bool:
    """Return whether a power cut explains each lost message, and nothing else is wrong with what arrived."""
    return _has_none(findings.get("no_loss"), WITHOUT_POWER_CUT, "unexpected", "duplicates_forbidden")


def forgets_queues_with_power(findings: Mapping[str, Finding]) -> bool:
    """Return whether each lost message was lost with its queue when all nodes lost power, and nothing else is wrong
    with what arrived."""
    return _has_none(findings.get("no_loss"), FROM_LISTED_QUEUES, "unexpected", "duplicates_forbidden")


def all_mirrors_were_away(findings: Mapping[str, Finding]) -> bool:
    """Return whether all nodes with a copy were away after each lost message was sent, and nothing else is wrong with
    what arrived."""
    return _has_none(findings.get("no_loss"), WITH_A_MIRROR_UP, "unexpected", "duplicates_forbidden")


def forgets_with_power(findings: Mapping[str, Finding]) -> bool:
    """Return whether a power cut of all nodes explains each declaration that is gone, and nothing else is wrong."""
    return _has_none(findings.get("metadata"), WITHOUT_POWER_CUT, "created_in_a_minority")


def _has_none(found: Finding | None, *names: str) -> bool:
    """Return whether all numbers of those names are in the finding, and are 0."""
    return found is not None and all(found.numbers.get(name) == 0 for name in names)


FINDINGS_TRACES: Mapping[str, FindingsTrace] = {
    "refuses_messages": refuses_messages,
    "loses_with_power": loses_with_power,
    "forgets_queues_with_power": forgets_queues_with_power,
    "forgets_with_power": forgets_with_power,
    "all_mirrors_were_away": all_mirrors_were_away,
}

TRACES: Mapping[str, Trace] = {
    "decides_anew": decides_again,
    "pauses_late": pauses_late,
    "never_pauses": never_pauses,
    "waits_to_pause": waits_to_pause,
    "starts_apart": starts_apart,
    "resumes_apart": resumes_apart,
    "leads_while_pausing": leads_while_pausing,
}


def _lines(log: str) -> Iterator[tuple[float, str]]:
    """Yield the time and the text of each line; further lines of a message are left out."""
    for line in _LINE.finditer(log):
        yield datetime.fromisoformat(line[1]).timestamp(), line[2]
