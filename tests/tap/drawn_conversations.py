"""Draw what a client and a broker say to each other on one connection, and how its bytes arrive."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.tap.frames import ALIVE, BODY, HEADER, PROTOCOL, frame
from tests.tap.reference.amqp_grammar import METHODS, arguments, properties

CLIENT, BROKER = 0, 1
_QUEUES = ("", "q1", "q2", "näme")
_TAGS = ("", "c1", "c2")
_ASKED = (
    *("queue.declare", "queue.declare", "queue.delete", "queue.purge", "queue.bind", "queue.unbind", "basic.qos"),
    *("exchange.declare", "tx.select", "tx.commit", "tx.rollback", "confirm.select", "confirm.select"),
    *("basic.cancel", "basic.recover", "channel.flow"),
)
_SIZES = (0, 0, 1, 7, 60, 300)
FRAME_MAX = 64


@dataclass
class _Open:
    """A channel. ``due`` are replies of the broker, in their order."""

    due: deque[tuple[str, dict[str, Any]]] = field(default_factory=deque)
    consumers: list[str] = field(default_factory=list)
    gets: int = 0
    tag: int = 0
    published: int = 0
    closing: set[int] = field(default_factory=set)
    #: Which side has still to agree to a close of the other.
    agrees: set[int] = field(default_factory=set)


class Drawn:
    """One conversation. ``planted`` names what is in it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sent: list[tuple[int, bytes]] = [(CLIENT, PROTOCOL)]
        self.planted: set[str] = set()
        self.heartbeat_s = chance.choice([0, 1, 60])
        self._channels: dict[int, _Open] = {}
        self._generated = 0
        self._greet()
        for _ in range(chance.randint(3, 60)):
            self._step()
        if chance.random() < 0.5:
            by = chance.choice([CLIENT, BROKER])
            self._say(by, 0, "connection.close", code=320, text="CONNECTION_FORCED", **{"class": 60, "method": 40})
            self._step()
            self._say(1 - by, 0, "connection.close-ok")
            self.planted.add("connection closed")

    def _say(self, side: int, channel: int, name: str, **values: Any) -> None:
        self.sent.append((side, frame(1, channel, arguments(name, **values))))

    def _greet(self) -> None:
        self._say(
            BROKER, 0, "connection.start", mechanisms="PLAIN AMQPLAIN", locales="en_US", properties={"a": {"b": True}}
        )
        given = {"product": "p", "connection_name": "näme", "capabilities": {"basic.nack": True}, "n": 4}
        response = b"\x00user\x00secret\xff"
        self._say(
            CLIENT, 0, "connection.start-ok", properties=given, mechanism="PLAIN", response=response, locale="en_US"
        )
        self._say(BROKER, 0, "connection.tune", channel_max=9, frame_max=FRAME_MAX, heartbeat=60)
        self._say(CLIENT, 0, "connection.tune-ok", channel_max=9, frame_max=FRAME_MAX, heartbeat=self.heartbeat_s)
        self._say(CLIENT, 0, "connection.open", vhost="/v")
        self._say(BROKER, 0, "connection.open-ok")

    def _step(self) -> None:
        chance = self.chance
        if chance.random() < 0.1:
            self._next_to_channels()
        number = chance.randint(1, 3)
        channel = self._channels.get(number)
        if channel is None:
            self._channels[number] = _Open(deque([("channel.open-ok", {})]))
            self._say(CLIENT, number, "channel.open")
        elif channel.closing:
            self._close_on(number, channel)
        elif channel.due and chance.random() < 0.5:
            self._reply(number, channel)
        elif chance.random() < 0.06:
            self._close(number, channel, chance.choice([CLIENT, BROKER]))
        else:
            chance.choice([self._client, self._client, self._broker])(number, channel)

    def _next_to_channels(self) -> None:
        side = self.chance.choice([CLIENT, BROKER])
        what = self.chance.choice(["heartbeat", "heartbeat", "blocked", "unblocked", "secret"])
        self.planted.add(what)
        if what == "heartbeat":
            self.sent.append((side, ALIVE))
        elif what == "secret":
            self._say(CLIENT, 0, "connection.update-secret", secret=b"\xffsecret", reason="old")
            self._say(BROKER, 0, "connection.update-secret-ok")
        else:
            self._say(BROKER, 0, f"connection.{what}", **({"reason": "low on memory"} if what == "blocked" else {}))

    def _reply(self, number: int, channel: _Open) -> None:
        name, values = channel.due.popleft()
        if self.chance.random() < 0.03 and name in {"basic.consume-ok", "queue.declare-ok", "basic.get-empty"}:
            self.planted.add("reply lost")
        elif name == "basic.get-ok":
            channel.tag += 1
            self._message(BROKER, number, name, delivery=channel.tag, redelivered=self._coin(), key="k")
        else:
            self._say(BROKER, number, name, **values)

    def _close(self, number: int, channel: _Open, side: int) -> None:
        channel.closing.add(side)
        channel.agrees.add(1 - side)
        wrong = self.chance.choice([{"class": 50, "method": 10}, {"class": 0, "method": 0}])
        self._say(side, number, "channel.close", code=404, text="NOT_FOUND", **wrong)
        self.planted.add("closed by both" if len(channel.closing) == 2 else f"closed by {side}")

    def _close_on(self, number: int, channel: _Open) -> None:
        """Go on while a close is under way: the other side may speak, close too, or agree."""
        chance = self.chance
        if len(channel.closing) == 1 and chance.random() < 0.25:
            other = 1 - next(iter(channel.closing))
            if chance.random() < 0.4:
                self._close(number, channel, other)
            else:
                (self._broker if other == BROKER else self._client)(number, channel)
            return
        # A client that has closed waits for the broker's agreement, unless the broker has closed the channel as well.
        side = chance.choice(sorted(channel.agrees))
        self._say(side, number, "channel.close-ok")
        channel.agrees.discard(side)
        if side == CLIENT and len(channel.closing) == 2 and channel.agrees and chance.random() < 0.5:
            self.planted.add("number in use again before the second agreement")
            self._say(CLIENT, number, "channel.open")
            self._say(BROKER, number, "channel.close-ok")
            self._channels[number] = _Open(deque([("channel.open-ok", {})]))
        elif not channel.agrees:
            del self._channels[number]

    def _coin(self) -> bool:
        return self.chance.random() < 0.5

    def _client(self, number: int, channel: _Open) -> None:
        acts: list[Callable[[int, _Open], None]] = [self._publish, self._publish, self._settle, self._ask, self._ask]
        self.chance.choice([*acts, self._consume, self._get])(number, channel)

    def _publish(self, number: int, channel: _Open) -> None:
        channel.published += 1
        where = {"exchange": self.chance.choice(["", "x"]), "key": self.chance.choice(["", "k.ä"])}
        self._message(CLIENT, number, "basic.publish", mandatory=self._coin(), **where)

    def _settle(self, number: int, channel: _Open) -> None:
        name = self.chance.choice(["basic.ack", "basic.nack", "basic.reject"])
        fields = {"multiple": self._coin(), "requeue": self._coin(), "delivery": self.chance.randint(0, channel.tag)}
        self._say(CLIENT, number, name, **fields)
        self.planted.add(f"{name}{' all' * (fields['multiple'] and not fields['delivery'])}")

    def _ask(self, number: int, channel: _Open) -> None:
        chance = self.chance
        name = chance.choice(_ASKED)
        no_wait = "nowait" in METHODS[name][2] and chance.random() < 0.4
        asked = {"queue": chance.choice(_QUEUES), "exchange": "x", "type": "topic", "key": "#", "nowait": no_wait}
        asked |= {each: self._coin() for each in ("durable", "exclusive", "auto_delete", "passive")}
        asked |= {"tag": chance.choice([*channel.consumers, "c1"]), "count": chance.randint(0, 9)}
        self._say(CLIENT, number, name, **asked, arguments={"x-max-length": 4})
        self.planted |= {"nowait"} if no_wait else set()
        if not no_wait:
            self._generated += 1
            reply = {"queue": asked["queue"] or f"amq.gen-{self._generated}", "tag": asked["tag"]}
            channel.due.append((f"{name}-ok", reply))

    def _consume(self, number: int, channel: _Open) -> None:
        self._generated += 1
        tag, no_wait = self.chance.choice(_TAGS), self.chance.random() < 0.2
        asked = {
            "queue": self.chance.choice(_QUEUES),
            "tag": tag,
            "no_ack": self._coin(),
            "nowait": no_wait and tag != "",
        }
        self._say(CLIENT, number, "basic.consume", **asked)
        given = tag or f"amq.ctag-{self._generated}"
        channel.consumers.append(given)
        if not asked["nowait"]:
            channel.due.append(("basic.consume-ok", {"tag": given}))

    def _get(self, number: int, channel: _Open) -> None:
        self._say(CLIENT, number, "basic.get", queue=self.chance.choice(_QUEUES), no_ack=self._coin())
        channel.due.append((self.chance.choice(["basic.get-ok", "basic.get-empty"]), {}))

    def _broker(self, number: int, channel: _Open) -> None:
        chance = self.chance
        what = chance.choice(["deliver", "deliver", "confirm", "confirm", "return", "cancel"])
        if what == "deliver":
            channel.tag += 1
            fields = {"tag": chance.choice([*channel.consumers, "c2"]), "delivery": channel.tag}
            self._message(BROKER, number, "basic.deliver", **fields, redelivered=self._coin(), exchange="x", key="k")
        elif what == "confirm":
            name = chance.choice(["basic.ack", "basic.ack", "basic.nack"])
            fields = {"multiple": self._coin(), "requeue": self._coin()}
            self._say(BROKER, number, name, delivery=chance.randint(0, channel.published), **fields)
        elif what == "return":
            self._message(BROKER, number, "basic.return", code=312, text="NO_ROUTE", exchange="x", key="k")
        elif channel.consumers:
            self._say(BROKER, number, "basic.cancel", tag=channel.consumers.pop(0), nowait=True)
            self.planted.add("cancelled by broker")

    def _message(self, side: int, number: int, name: str, **fields: Any) -> None:
        """Say a method with content. Frames of another channel may come between those of a long body."""
        chance = self.chance
        body = bytes([chance.randrange(3)]) * chance.choice(_SIZES)
        given = {"delivery_mode": chance.choice([1, 2]), "message_id": chance.choice(["m1", "m2", ""])}
        given |= {"correlation_id": "c", "priority": 4, "expiration": "9", "timestamp": 1_700_000_000, "user_id": "u"}
        given |= {"headers": chance.choice([{}, {"a": [1, None, {"b": "c"}]}, {"x-delivery-count": 3, "a": True}])}
        given = {key: value for key, value in given.items() if self._coin()}
        self._say(side, number, name, **fields)
        size = len(body).to_bytes(8)
        self.sent.append((side, frame(HEADER, number, b"\x00\x3c\x00\x00" + size + properties(**given))))
        for at in range(0, len(body), FRAME_MAX - 8):
            self.sent.append((side, frame(BODY, number, body[at : at + FRAME_MAX - 8])))
            if chance.random() < 0.1:
                self.sent.append((chance.choice([CLIENT, BROKER]), ALIVE))

    def pieces(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (moment, side, bytes): frames complete in their order, parts of one may come early, others together."""
        chance, now_us, early = self.chance, 1_000_000, [0] * len(self.sent)
        run_side, run = CLIENT, b""
        for at, (side, data) in enumerate(self.sent):
            if side != run_side or chance.random() < 0.3:
                if run:
                    now_us += chance.choice([0, 10, 900_000, 2_100_000])
                    yield now_us, run_side, run
                run_side, run = side, b""
            other = next((n for n in range(at, len(self.sent)) if self.sent[n][0] != side), None)
            if other is not None and chance.random() < 0.2 and early[other] < len(self.sent[other][1]) - 1:
                end = chance.randrange(early[other] + 1, len(self.sent[other][1]))
                yield now_us, 1 - side, self.sent[other][1][early[other] : end]
                early[other] = end
            run += data[early[at] :]
        last = run[: chance.randrange(len(run) + 1)] if chance.random() < 0.2 else run
        if last:
            yield now_us, run_side, last
