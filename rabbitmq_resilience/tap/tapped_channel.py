"""Decode what both sides say on one channel into rows and events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pika import spec

from rabbitmq_resilience.tap.amqp_methods import Side, name_of
from rabbitmq_resilience.tap.frame_stream import NotAmqpError
from rabbitmq_resilience.tap.message_identity import Hashes
from rabbitmq_resilience.tap.message_properties import is_persistent, read_properties
from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row

_WITH_CONTENT = frozenset({spec.Basic.Publish, spec.Basic.Return, spec.Basic.Deliver, spec.Basic.GetOk})


class Outlet(Protocol):
    """What takes the rows and events of a channel."""

    def row(self, row: Row) -> None: ...

    def properties(self, row: Row, values: Mapping[str, Any]) -> None:
        """Take the properties of the message of a row."""

    def say(self, what: str, *, channel: int = 0, fields: Mapping[str, Any] | None = None) -> None: ...

    @property
    def t_us(self) -> int:
        """Return the moment of what is decoded now."""
        ...


def reason(method: Any) -> dict[str, Any]:
    """Return why a channel or a connection was closed: the code, its text, and the method that was wrong."""
    wrong = spec.methods.get((method.class_id << 16) | method.method_id)
    return {"code": method.reply_code, "text": method.reply_text, "method": name_of(wrong) if wrong else ""}


@dataclass
class _Content:
    """A message whose header and bodies are on their way."""

    method: Any
    left_bytes: int = 0
    size_bytes: int = 0
    properties: Mapping[str, Any] | None = None
    body: Any = None


class TappedChannel:
    """A channel from its opening to its end. ``session`` is its number among the channels of its connection."""

    def __init__(self, connection: int, number: int, session: int, hashes: Hashes, outlet: Outlet) -> None:
        self.session = session
        #: Whether the broker has closed it. The client may publish on until it knows that.
        self.closed = False
        #: The sides that have asked to close it.
        self.closed_by: set[Side] = set()
        self._connection = connection
        self._number = number
        self._hashes = hashes
        self._outlet = outlet
        self._mode = Mode.PLAIN
        self._published = 0
        self._prefetch = 0
        #: By consumer tag its queue, and whether the broker takes its deliveries as acknowledged.
        self._consumers: dict[str, tuple[str, bool]] = {}
        #: The queue that an empty name means.
        self._last_queue = ""
        self._asked: deque[Any] = deque()
        #: Consumers whose reply has not come, though later requests were answered; each with its limit of prefetch.
        self._late: list[tuple[Any, int]] = []
        #: By identity of a request, what held when it was asked: the limit of prefetch, or how much was published.
        self._limits: dict[int, int] = {}
        self._content: dict[Side, _Content] = {}
        self._say("channel_opened", session=session)

    def method(self, sender: Side, method: Any) -> None:
        """Take a method that one side sent."""
        if type(method) in _WITH_CONTENT:
            self._content[sender] = _Content(method)
        elif self.closed:
            return
        elif sender is Side.BROKER and type(method) in _REPLIES:
            if (asked := self._answered(method)) is not None:
                _DONE.get(type(asked), _ignored)(self, asked, method)
                self._do_unanswered()
        elif (sent := _SENT.get((sender, type(method)))) is not None:
            sent(self, method)
        elif sender is Side.CLIENT and type(method) in _REPLIES_TO:
            if isinstance(method, spec.Tx.Commit | spec.Tx.Rollback):
                self._limits[id(method)] = self._published
            self._asked.append(method)
            self._do_unanswered()

    def header(self, sender: Side, payload: bytes) -> None:
        """Take the header of a message. Raise NotAmqpError if none is due."""
        content = self._content.get(sender)
        if content is None or content.properties is not None:
            raise NotAmqpError(f"a message's header came on channel {self._number} out of its order")
        content.size_bytes = content.left_bytes = int.from_bytes(payload[4:12])
        content.properties = read_properties(payload)
        content.body = self._hashes.body()
        self._complete(sender, content, content.properties)

    def body(self, sender: Side, payload: bytes) -> None:
        """Take a piece of a message's body. Raise NotAmqpError if none is due."""
        content = self._content.get(sender)
        if content is None or content.properties is None or len(payload) > content.left_bytes:
            raise NotAmqpError(f"a message's body came on channel {self._number} out of its order, or is too long")
        content.body.update(payload)
        content.left_bytes -= len(payload)
        self._complete(sender, content, content.properties)

    def _say(self, what: str, **fields: Any) -> None:
        self._outlet.say(what, channel=self._number, fields=fields)

    def _row(self, kind: Kind, **fields: Any) -> Row:
        row = Row(self._outlet.t_us, self._connection, self.session, kind, **fields)
        self._outlet.row(row)
        return row

    def _complete(self, sender: Side, content: _Content, properties: Mapping[str, Any]) -> None:
        """Record a message once all of its body is there."""
        if content.left_bytes:
            return
        del self._content[sender]
        digest = content.body.digest()
        identity, named = self._hashes.identity(properties, digest)
        fields: dict[str, Any] = {
            "routing_key": content.method.routing_key or "",
            "persistent": is_persistent(properties),
            "size_bytes": content.size_bytes,
            "body": int.from_bytes(digest),
            "identity": identity,
            "named": named,
            "expires": "expiration" in properties,
            "priority": properties.get("priority", 0),
        }
        row = self._row(**fields, **self._fields_of(content.method))
        self._outlet.properties(row, properties)
        self._do_unanswered()

    def _fields_of(self, method: Any) -> dict[str, Any]:
        """Return the fields of a message's row that depend on the method that carries it."""
        if isinstance(method, spec.Basic.Publish):
            counts = self._mode in {Mode.CONFIRMS, Mode.TRANSACTIONS}
            self._published += counts
            tag = self._published if counts else 0
            fields = {"kind": Kind.PUBLISHED, "tag": tag, "flag": bool(method.mandatory)}
            return fields | {"mode": self._mode, "place": method.exchange or ""}
        if isinstance(method, spec.Basic.Return):
            return {"kind": Kind.RETURNED, "mode": self._mode, "place": method.exchange or ""}
        if isinstance(method, spec.Basic.Deliver):
            kind, (queue, automatic) = Kind.DELIVERED, self._consumer(method.consumer_tag)
        else:
            asked = self._answered(method)
            kind, (queue, automatic) = Kind.GOT, (self._named(asked), bool(asked.no_ack)) if asked else ("", False)
        mode = Mode.AUTOMATIC if automatic else Mode.PLAIN
        fields = {"kind": kind, "tag": method.delivery_tag, "flag": bool(method.redelivered)}
        return fields | {"place": queue, "mode": mode}

    def _answered(self, reply: Any) -> Any:
        """Return the request that is answered now; None if there is none. A broker answers the requests of a channel in
        their order, so the replies to those before it were lost: a rule can drop one. Only the reply to a consumer may
        come late, as its queue sends it."""
        late = [asked for asked, _ in self._late if isinstance(reply, spec.Basic.ConsumeOk)]
        waiting = [asked for asked in self._asked if type(reply) in _REPLIES_TO[type(asked)] and not _unanswered(asked)]
        fitting = [*late, *waiting]
        exact = [asked for asked in fitting if _name_in(asked) == _name_in(reply)]
        found = next(iter(exact or [asked for asked in fitting if not _name_in(asked)]), None)
        if any(found is asked for asked in late):
            self._limits |= {id(asked): prefetch for asked, prefetch in self._late if asked is found}
            self._late = [one for one in self._late if one[0] is not found]
            return found
        while found is not None and (asked := self._asked.popleft()) is not found:
            self._passed_over(asked)
        return found

    def _passed_over(self, asked: Any) -> None:
        """Take a request that was not answered before a later one."""
        if _unanswered(asked):
            _DONE.get(type(asked), _ignored)(self, asked, None)
        elif isinstance(asked, spec.Queue.Declare):
            self._last_queue = asked.queue
        elif isinstance(asked, spec.Basic.Consume):
            asked.queue = self._named(asked) or None  # no declaration that comes later names it
            self._late.append((asked, self._prefetch))

    def _do_unanswered(self) -> None:
        """Take requests that want no reply as done, once those before them are answered."""
        while self._asked and _unanswered(self._asked[0]):
            asked = self._asked.popleft()
            _DONE.get(type(asked), _ignored)(self, asked, None)

    def _consumer(self, tag: str) -> tuple[str, bool]:
        """Return the queue of a consumer, and whether its deliveries need no acknowledgement."""
        if (known := self._consumers.get(tag)) is not None:
            return known
        waiting = [*(asked for asked, _ in self._late), *self._asked]
        asked = (each for each in waiting if isinstance(each, spec.Basic.Consume) and each.consumer_tag == tag)
        found = next(asked, None)
        return ("", False) if found is None else (self._named(found), bool(found.no_ack))

    def _named(self, method: Any) -> str:
        """Return the queue that a method names; an empty name is that of the declaration before it, answered or not."""
        if method.queue or method.queue is None:
            return str(method.queue or "")
        name = self._last_queue
        for each in self._asked:
            if each is method:
                return str(name)
            name = each.queue if isinstance(each, spec.Queue.Declare) else name
        return str(self._last_queue)

    # What a side says without a reply, or before it.

    def _close_sent(self, method: Any) -> None:
        self.closed_by.add(Side.CLIENT)
        self._say("channel_closed", by="client", session=self.session, **reason(method))

    def _close_got(self, method: Any) -> None:
        self.closed = True
        self.closed_by.add(Side.BROKER)
        self._say("channel_closed", by="broker", session=self.session, **reason(method))

    def _selected(self, mode: Mode, what: str) -> None:
        self._mode = mode
        self._say(what, session=self.session)

    def _settled(self, kind: Kind, method: Any) -> None:
        requeue = kind is Kind.REJECTED and bool(getattr(method, "requeue", False))
        multiple = bool(getattr(method, "multiple", False))
        self._row(kind, tag=method.delivery_tag, multiple=multiple, flag=requeue, mode=self._mode)

    def _cancelled(self, by: Side, method: Any) -> None:
        """Record the end of a consumer, whose reply may not have come."""
        tag, known = method.consumer_tag, self._consumers
        late = [asked for asked, _ in self._late if asked.consumer_tag == tag]
        queue = known[tag][0] if tag in known else self._named(late[0]) if late else ""
        self._say("cancelled", by=by.name.lower(), consumer=tag, queue=queue)
        if by is Side.BROKER:  # after a client's, more may be on its way
            known.pop(tag, None)
            self._late = [one for one in self._late if one[0].consumer_tag != tag]

    # What the broker has done; ``reply`` is None if the client wanted none.

    def _declared(self, asked: Any, reply: Any) -> None:
        self._last_queue = asked.queue if reply is None else reply.queue
        fields = {name: bool(getattr(asked, name)) for name in ("durable", "exclusive", "auto_delete", "passive")}
        self._say("queue_declared", queue=self._last_queue, **fields)

    def _deleted(self, asked: Any, _: Any) -> None:
        self._say("queue_deleted", queue=self._named(asked))

    def _purged(self, asked: Any, _: Any) -> None:
        self._say("queue_purged", queue=self._named(asked))

    def _bound(self, asked: Any, _: Any) -> None:
        what = "queue_bound" if isinstance(asked, spec.Queue.Bind) else "queue_unbound"
        self._say(what, queue=self._named(asked), exchange=asked.exchange, routing_key=asked.routing_key)

    def _exchange_declared(self, asked: Any, _: Any) -> None:
        self._say("exchange_declared", exchange=asked.exchange, type=asked.type, passive=bool(asked.passive))

    def _limited(self, asked: Any, _: Any) -> None:
        self._prefetch = asked.prefetch_count

    def _ended(self, kind: Kind, asked: Any) -> None:
        """Record the end of a transaction, which has the messages that were published before it was asked for."""
        self._row(kind, tag=self._limits.pop(id(asked), 0), multiple=True)

    def _recovered(self) -> None:
        """Record that all deliveries that wait go back to their queues, also in a transaction."""
        self._row(Kind.REJECTED, multiple=True, flag=True)

    def _consumes(self, asked: Any, reply: Any) -> None:
        tag = asked.consumer_tag if reply is None else reply.consumer_tag
        queue, automatic = self._named(asked), bool(asked.no_ack)
        self._consumers[tag] = (queue, automatic)
        prefetch = self._limits.pop(id(asked), self._prefetch)
        fields = {"automatic": automatic, "prefetch": prefetch, "session": self.session}
        self._say("consuming", consumer=tag, queue=queue, **fields)


def _unanswered(asked: Any) -> bool:
    return bool(getattr(asked, "nowait", False))


def _name_in(method: Any) -> str:
    """Return what a reply repeats of its request: the consumer tag, or the name of the declared queue."""
    if isinstance(method, spec.Basic.Consume | spec.Basic.ConsumeOk):
        return str(method.consumer_tag)
    return str(method.queue) if isinstance(method, spec.Queue.Declare | spec.Queue.DeclareOk) else ""


def _ignored(channel: TappedChannel, asked: Any, reply: Any) -> None: ...


_SENT: Mapping[tuple[Side, type], Callable[[TappedChannel, Any], None]] = {
    (Side.CLIENT, spec.Channel.Close): TappedChannel._close_sent,
    (Side.BROKER, spec.Channel.Close): TappedChannel._close_got,
    # The broker counts what comes after these, also before it has replied.
    (Side.CLIENT, spec.Confirm.Select): lambda c, _: c._selected(Mode.CONFIRMS, "confirms_selected"),
    (Side.CLIENT, spec.Tx.Select): lambda c, _: c._selected(Mode.TRANSACTIONS, "transactions_selected"),
    (Side.CLIENT, spec.Basic.Ack): lambda c, m: c._settled(Kind.ACKED, m),
    (Side.BROKER, spec.Basic.Ack): lambda c, m: c._settled(Kind.CONFIRMED, m),
    (Side.CLIENT, spec.Basic.Nack): lambda c, m: c._settled(Kind.REJECTED, m),
    (Side.BROKER, spec.Basic.Nack): lambda c, m: c._settled(Kind.NACKED, m),
    (Side.CLIENT, spec.Basic.Reject): lambda c, m: c._settled(Kind.REJECTED, m),
    (Side.CLIENT, spec.Basic.RecoverAsync): lambda c, _: c._recovered(),
    (Side.CLIENT, spec.Basic.Cancel): lambda c, m: c._cancelled(Side.CLIENT, m),
    (Side.BROKER, spec.Basic.Cancel): lambda c, m: c._cancelled(Side.BROKER, m),
}

_DONE: Mapping[type, Callable[[TappedChannel, Any, Any], None]] = {
    spec.Queue.Declare: TappedChannel._declared,
    spec.Queue.Delete: TappedChannel._deleted,
    spec.Queue.Purge: TappedChannel._purged,
    spec.Queue.Bind: TappedChannel._bound,
    spec.Queue.Unbind: TappedChannel._bound,
    spec.Exchange.Declare: TappedChannel._exchange_declared,
    spec.Basic.Qos: TappedChannel._limited,
    spec.Basic.Consume: TappedChannel._consumes,
    spec.Basic.Recover: lambda c, *_: c._recovered(),
    spec.Tx.Commit: lambda c, asked, _: c._ended(Kind.COMMITTED, asked),
    spec.Tx.Rollback: lambda c, asked, _: c._ended(Kind.ROLLED_BACK, asked),
}

_NAMED = {name_of(method): method for method in spec.methods.values()}
#: By request, the methods that answer it.
_REPLIES_TO: Mapping[type, frozenset[type]] = {
    method: frozenset({_NAMED[f"{name}-ok"], *({spec.Basic.GetEmpty} if name == "basic.get" else ())})
    for name, method in _NAMED.items()
    if f"{name}-ok" in _NAMED
}
_REPLIES = frozenset().union(*_REPLIES_TO.values())
