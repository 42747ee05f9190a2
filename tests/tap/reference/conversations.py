"""Say what a tap must record of one connection, from all of its bytes, by the grammar and the order of requests alone.

Bodies and identities are here what they are made of, and not their hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.tap.reference.amqp_grammar import METHODS, NAMES, read_header, read_method, read_table

CLIENT, BROKER = 0, 1
WORDS = ("client", "broker")
#: (moment, side, bytes) in the order in which the client sends and gets them.
Pieces = Sequence[tuple[int, int, bytes]]
#: A row has the kind "row" and an event its name; then the channel, or the session of a row, and the fields.
Said = tuple[str, int, int, dict[str, Any]]

_OWN_PROPERTIES = ("content_type", "content_encoding", "correlation_id", "reply_to", "timestamp", "type", "app_id")
_OF_BROKERS = {"x-death", "x-delivery-count", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"}
_SETTLED = {
    ("basic.ack", CLIENT): "ACKED",
    ("basic.nack", CLIENT): "REJECTED",
    ("basic.reject", CLIENT): "REJECTED",
    ("basic.ack", BROKER): "CONFIRMED",
    ("basic.nack", BROKER): "NACKED",
}
_MESSAGES = {"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"}


@dataclass(eq=False)
class Request:
    """What a client asked for. ``reply`` has the arguments of its reply."""

    name: str
    asked: dict[str, Any]
    state: str = "open"
    reply: dict[str, Any] = field(default_factory=dict)
    #: How many messages with confirms, or in transactions, came before it.
    published: int = 0

    @property
    def wants_reply(self) -> bool:
        return not self.asked.get("nowait", False)

    @property
    def key(self) -> str:
        """Return what the reply to it repeats."""
        return str(self.asked[{"basic.consume": "tag", "queue.declare": "queue"}[self.name]]) if self._repeats else ""

    @property
    def _repeats(self) -> bool:
        return self.name in {"basic.consume", "queue.declare"}


@dataclass
class Life:
    """One life of a channel."""

    channel: int
    session: int
    requests: list[Request] = field(default_factory=list)
    mode: str = "PLAIN"
    published: int = 0
    asked_to_close: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)
    message: dict[int, tuple[str, dict[str, Any], bytes, bytes]] = field(default_factory=dict)

    def queue_of(self, request: Request) -> str:
        """Return the queue that a request names: an empty name is that of the declare before it."""
        if request.asked["queue"]:
            return str(request.asked["queue"])
        before = self.requests[: self.requests.index(request)]
        declared = [each for each in before if each.name == "queue.declare"]
        return "" if not declared else str(declared[-1].reply.get("queue") or declared[-1].asked["queue"])

    def replied(self, name: str, reply: dict[str, Any]) -> list[Request]:
        """Return the requests that are done by a reply, in their order."""
        key = str(reply.get("tag", "") if name == "basic.consume-ok" else reply.get("queue", ""))
        unanswered = [
            each for each in self.requests if each.state in {"open", "late"} and id(each) not in self.cancelled
        ]
        waiting = [each for each in unanswered if each.wants_reply]
        fits = [each for each in waiting if name in answers(each.name)]
        found = [each for each in fits if each.key == key] or [each for each in fits if not each.key]
        if not found:
            return []
        done = []
        for each in self.requests[: self.requests.index(found[0])]:
            if each.state == "open" and each.name == "basic.consume" and each.wants_reply:
                each.state = "late"  # its queue replies by itself
            elif each.state == "open":
                each.state = "lost" if each.wants_reply else "done"
                done += [each] * (each.state == "done")
        found[0].state, found[0].reply = "done", reply
        return [*done, found[0], *self.due()]

    def due(self) -> list[Request]:
        """Return requests that want no reply, once all before them are done."""
        done = []
        for each in self.requests:
            if each.state == "open" and each.wants_reply:
                break
            if each.state == "open":
                each.state = "done"
                done.append(each)
        return done

    def consumer(self, tag: str) -> Request | None:
        consumes = [each for each in self.requests if each.name == "basic.consume" and id(each) not in self.cancelled]
        named = [each for each in consumes if (each.reply.get("tag") or each.asked["tag"]) == tag]
        known = [each for each in named if each.state not in {"open", "late"}]
        return known[-1] if known else named[0] if named else None

    def prefetch(self, before: Request) -> int:
        limits = [each for each in self.requests[: self.requests.index(before)] if each.name == "basic.qos"]
        return int(([0] + [each.asked["count"] for each in limits if each.state == "done"])[-1])


def answers(name: str) -> set[str]:
    return {f"{name}-ok", *(["basic.get-empty"] if name == "basic.get" else [])} & set(METHODS)


class Heard:
    """Read one conversation."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self._rest = [b"", b""]
        self._lives: dict[int, Life] = {}
        self._sessions = 0
        self._beat_s = 0
        self._heard: dict[int, int] = {}
        self._now = 0

    def hear(self, pieces: Pieces, *, until: int) -> list[Said]:
        for self._now, side, data in pieces:
            self._silent(side)
            self._heard[side] = self._now
            self._rest[side] += data
            while (frame := self._frame(side)) is not None:
                self._take(side, frame)
        self._now = until
        for side in (CLIENT, BROKER):
            self._silent(side)
            if self._rest[side]:
                self._say("cut_short", 0, sender=WORDS[side], kept_bytes=len(self._rest[side]))
        return self.said

    def _frame(self, side: int) -> bytes | None:
        rest = self._rest[side]
        size = 8 if rest[:1] == b"A" else 8 + int.from_bytes(rest[3:7])
        if len(rest) < max(7, size):
            return None
        self._rest[side] = rest[size:]
        return rest[:size]

    def _say(self, what: str, channel: int, **fields: Any) -> None:
        self.said.append((what, self._now, channel, fields))

    def _silent(self, side: int) -> None:
        gap_s = (self._now - self._heard.get(side, self._now)) / 1e6
        if self._beat_s and gap_s > 2 * self._beat_s:
            self._say("silent", 0, sender=WORDS[side], for_s=round(gap_s, 1), heartbeat_s=self._beat_s)

    def _take(self, side: int, frame: bytes) -> None:
        kind, channel, payload = frame[0], int.from_bytes(frame[1:3]), frame[7:-1]
        if kind == 1:
            name, values = read_method(payload)
            (self._of_channel if channel else self._of_connection)(side, channel, name, values)
        elif kind in {2, 3} and (life := self._lives.get(channel)) is not None:
            name, values, header, body = life.message[side]
            life.message[side] = (name, values, payload, b"") if kind == 2 else (name, values, header, body + payload)
            self._message(side, life)

    def _of_connection(self, side: int, _channel: int, name: str, values: dict[str, Any]) -> None:
        if name == "connection.start-ok":
            names = ("product", "version", "platform", "connection_name")
            given = read_table(values["properties"])
            self._say("client", 0, **{each: given[each] for each in names if each in given})
        elif name == "connection.tune-ok":
            self._beat_s = values["heartbeat"]
            self._say("tuned", 0, heartbeat_s=values["heartbeat"], frame_bytes_max=values["frame_max"])
        elif name == "connection.open":
            self._say("asks", 0, vhost=values["vhost"])
        elif name == "connection.open-ok":
            self._say("connected", 0)
        elif name == "connection.close":
            self._say("connection_closed", 0, by=WORDS[side], **reason(values))
        elif name == "connection.blocked":
            self._say("blocked", 0, detail=values["reason"])
        elif name == "connection.unblocked":
            self._say("unblocked", 0)

    def _of_channel(self, side: int, channel: int, name: str, values: dict[str, Any]) -> None:
        if name == "channel.open":
            self._lives[channel] = Life(channel, self._sessions)
            self._say("channel_opened", channel, session=self._sessions)
            self._sessions += 1
            return
        if (life := self._lives.get(channel)) is None:
            return
        if name == "channel.close-ok":
            if 1 - side in life.asked_to_close:
                del self._lives[channel]
        elif name in _MESSAGES:
            life.message[side] = (name, values, b"", b"")
        elif BROKER not in life.asked_to_close:
            self._of_open(side, channel, life, name, values)

    def _of_open(self, side: int, channel: int, life: Life, name: str, values: dict[str, Any]) -> None:
        if name == "channel.close":
            life.asked_to_close.add(side)
            self._say("channel_closed", channel, by=WORDS[side], session=life.session, **reason(values))
        elif name in {"confirm.select", "tx.select"}:
            life.mode = {"confirm.select": "CONFIRMS", "tx.select": "TRANSACTIONS"}[name]
            self._say(f"{life.mode.lower()}_selected", channel, session=life.session)
        elif (name, side) in _SETTLED:
            kind = _SETTLED[name, side]
            requeue = values.get("requeue", False) and kind == "REJECTED"
            multiple = values.get("multiple", False)
            self._row(life, kind, tag=values["delivery"], multiple=multiple, flag=requeue, mode=life.mode)
        elif name == "basic.cancel":
            consumer = life.consumer(values["tag"])
            known = consumer is not None and consumer.state != "open"
            queue = life.queue_of(consumer) if consumer is not None and known else ""
            self._say("cancelled", channel, by=WORDS[side], consumer=values["tag"], queue=queue)
            if side == BROKER:
                for each in life.requests:
                    if each.name == "basic.consume" and (each.reply.get("tag") or each.asked["tag"]) == values["tag"]:
                        life.cancelled |= {id(each)} if each.state != "open" else set()
        elif side == CLIENT and answers(name):
            life.requests.append(Request(name, values, published=life.published))
            self._done(channel, life, life.due())
        elif side == BROKER:
            self._done(channel, life, life.replied(name, values))

    def _done(self, channel: int, life: Life, requests: Sequence[Request]) -> None:
        for each in requests:
            asked = each.asked
            queue = life.queue_of(each) if "queue" in asked else ""
            if each.name == "queue.declare":
                flags = {name: asked[name] for name in ("durable", "exclusive", "auto_delete", "passive")}
                self._say("queue_declared", channel, queue=each.reply.get("queue", asked["queue"]), **flags)
            elif each.name in {"queue.delete", "queue.purge"}:
                self._say(
                    {"queue.delete": "queue_deleted", "queue.purge": "queue_purged"}[each.name], channel, queue=queue
                )
            elif each.name in {"queue.bind", "queue.unbind"}:
                what = {"queue.bind": "queue_bound", "queue.unbind": "queue_unbound"}[each.name]
                self._say(what, channel, queue=queue, exchange=asked["exchange"], routing_key=asked["key"])
            elif each.name == "exchange.declare":
                fields = {"exchange": asked["exchange"], "type": asked["type"], "passive": asked["passive"]}
                self._say("exchange_declared", channel, **fields)
            elif each.name == "basic.consume":
                fields = {"automatic": asked["no_ack"], "prefetch": life.prefetch(each), "session": life.session}
                self._say("consuming", channel, consumer=each.reply.get("tag", asked["tag"]), queue=queue, **fields)
            elif each.name == "basic.recover":
                self._row(life, "REJECTED", tag=0, multiple=True, flag=True, mode="PLAIN")
            elif each.name in {"tx.commit", "tx.rollback"}:
                kind = {"tx.commit": "COMMITTED", "tx.rollback": "ROLLED_BACK"}[each.name]
                self._row(life, kind, tag=each.published, multiple=True)

    def _message(self, side: int, life: Life) -> None:
        name, values, header, body = life.message[side]
        size, given = read_header(header)
        if len(body) < size:
            return
        headers = {key: each for key, each in read_table(given.get("headers", b"")).items() if key not in _OF_BROKERS}
        content = tuple((each, given[each]) for each in _OWN_PROPERTIES if each in given)
        named = "message_id" in given
        identity = given["message_id"] if named else (content, repr(sorted(headers.items())), body)
        fields = {
            "routing_key": values["key"],
            "persistent": given.get("delivery_mode") == 2,
            "size_bytes": size,
            "body": body,
            "identity": identity,
            "named": named,
            "expires": "expiration" in given,
            "priority": given.get("priority", 0),
        }
        if name == "basic.publish":
            life.published += life.mode in {"CONFIRMS", "TRANSACTIONS"}
            tag = life.published if life.mode in {"CONFIRMS", "TRANSACTIONS"} else 0
            place = values["exchange"]
            self._row(life, "PUBLISHED", tag=tag, flag=values["mandatory"], mode=life.mode, place=place, **fields)
        elif name == "basic.return":
            self._row(life, "RETURNED", mode=life.mode, place=values["exchange"], **fields)
        else:
            self._delivered(life, name, values, fields)

    def _delivered(self, life: Life, name: str, values: dict[str, Any], fields: dict[str, Any]) -> None:
        after: list[Request] = []
        if name == "basic.deliver":
            kind, request = "DELIVERED", life.consumer(values["tag"])
        else:
            kind = "GOT"
            gets = [each for each in life.requests if each.name == "basic.get" and each.state == "open"]
            request = gets[0] if gets else None
            if request is not None:
                done = life.replied("basic.get-ok", {})
                before, after = done[: done.index(request)], done[done.index(request) :]
                self._done(life.channel, life, before)
        place = "" if request is None else life.queue_of(request)
        mode = "AUTOMATIC" if request is not None and request.asked["no_ack"] else "PLAIN"
        self._row(life, kind, tag=values["delivery"], flag=values["redelivered"], mode=mode, place=place, **fields)
        self._done(life.channel, life, after)

    def _row(self, life: Life, kind: str, **fields: Any) -> None:
        self.said.append(("row", self._now, life.session, {"kind": kind, **fields}))


def reason(values: dict[str, Any]) -> dict[str, Any]:
    wrong = NAMES.get((values["class"], values["method"]), "")
    return {"code": values["code"], "text": values["text"], "method": wrong}
