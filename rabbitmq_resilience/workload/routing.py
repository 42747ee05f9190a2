"""Describe the exchanges and bindings of a workload, and what publishers publish to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE, Bound, ExchangeType, Reached, Router

#: The limit of a short string in AMQP 0-9-1.
KEY_BYTES_MAX = 255
#: More than any study had (7,900), and few enough to test each one before the load.
TURNS_MAX = 20_000
#: The largest weight of a queue that RabbitMQ's plugin takes.
WEIGHT_MAX = 10_000

SERVICE_PREFIX = "service:"
HASH_PLUGIN = "rabbitmq_consistent_hash_exchange"

Name = Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]*$", max_length=200)]
Key = Annotated[str, Field(max_length=KEY_BYTES_MAX)]
Keys = Annotated[int, Field(ge=1, le=TURNS_MAX)]
Headers = Mapping[Annotated[str, Field(min_length=1, max_length=128)], str]


class PublishArguments(NamedTuple):
    """The exchange, routing key and headers that a message is published with."""

    exchange: str
    routing_key: str
    headers: Mapping[str, str]


class Exchange(Spec):
    """An exchange. Its ``alternate_exchange`` takes messages that match none of its bindings. An exchange of the type
    ``consistent_hash`` gives each message to one of its queues, by the routing key. It needs the plugin
    rabbitmq_consistent_hash_exchange, which comes with RabbitMQ; loads that need it have it enabled."""

    name: Name
    type: ExchangeType
    alternate_exchange: Name | None = None


class _Keyed(Spec):
    """A routing key, or with ``routing_keys`` several ones."""

    routing_key: Key = ""
    routing_keys: Keys | None = None
    headers: Headers = Field(default_factory=dict)

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if ("%d" in self.routing_key) != (self.routing_keys is not None) or self.routing_key.count("%d") > 1:
            raise ValueError(
                "routing_keys is the number of keys, and %d in routing_key the place of a key's number: write both "
                "(routing_key: price.%d, routing_keys: 100) or neither"
            )
        if any(len(key.encode()) > KEY_BYTES_MAX for key in self.keys[-1:]):
            raise ValueError(f"a routing key has at most {KEY_BYTES_MAX} bytes")
        if wrong := [name for name in self.headers if name.startswith("x-")]:
            raise ValueError(f"the header {wrong[0]!r} begins with x-, which exchanges do not look at")
        return self

    @property
    def keys(self) -> list[str]:
        if self.routing_keys is None:
            return [self.routing_key]
        return [self.routing_key.replace("%d", str(number)) for number in range(1, self.routing_keys + 1)]


class Binding(_Keyed):
    """A binding from an ``exchange`` to ``queues`` (their names, ``service:x`` for those of a service, or ``all``), or
    to another exchange (``to_exchange``).

    - Each of the queues is bound by ``routing_key``: a pattern if the exchange has the type topic, a weight if it has
      the type consistent_hash (empty: 1). With ``routing_keys``, ``%d`` in it stands for 1, 2, ... and the queues get
      the keys in turn.
    - ``headers`` (strings) are the headers that a headers exchange looks for; ``match`` says if it needs all or any.
    """

    exchange: Name
    queues: str | tuple[str, ...] = ()
    to_exchange: Name | None = None
    match: Literal["all", "any"] = "all"

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if bool(self.queues) == (self.to_exchange is not None):
            raise ValueError("a binding leads to queues or to an exchange: write queues (such as all) or to_exchange")
        return self


class Publishing(_Keyed):
    """The parameters of published messages: the ``exchange`` (by default the default one, whose routing key is the name
    of a queue), ``routing_key`` and ``headers``. With ``routing_keys``, ``%d`` in the key stands for 1, 2, ..."""

    exchange: str = DEFAULT_EXCHANGE

    @property
    def turns(self) -> list[PublishArguments]:
        return [PublishArguments(self.exchange, key, dict(self.headers)) for key in self.keys]


class Routing(Spec):
    """The exchanges of a load, their bindings, and the turns that its messages are published with.

    ``publish`` is a list of turns. Each publisher takes its share of them, one after another: publisher i of P takes
    the turns i, i + P, ... If there are fewer turns than publishers, it takes the turn i modulo their number. Every
    turn must lead to a queue. A message that leads to several queues is owed to each of them.

    Before the load, every node must know all bindings. Then one test message for each turn must come out of exactly the
    queues that AMQP's rules demand. A consistent hash exchange chooses one of its queues, and its messages are expected
    there. They may also come from another one of its queues, but from one only: after a restart of all nodes, 3.10.8
    chose again. So nothing else may be bound to such queues. Examples: fan_out and shards in ``faults/examples``.
    """

    exchanges: tuple[Exchange, ...] = ()
    bindings: tuple[Binding, ...] = ()
    publish: Annotated[tuple[Publishing, ...], Field(min_length=1)]

    @property
    def turns(self) -> list[PublishArguments]:
        return [turn for publishing in self.publish for turn in publishing.turns]

    @property
    def plugins(self) -> frozenset[str]:
        """Return the plugins that brokers must have enabled."""
        return frozenset({HASH_PLUGIN} if any(one.type == "consistent_hash" for one in self.exchanges) else ())

    def bound(self, queues: Sequence[str]) -> list[Bound]:
        """Return all bindings of the load, each once. ``queues`` are the names of its queues."""
        types = {exchange.name: exchange.type for exchange in self.exchanges}
        found: dict[Bound, None] = {}
        for binding in self.bindings:
            headers, to_exchange = tuple(sorted(binding.headers.items())), binding.to_exchange is not None
            targets = [binding.to_exchange] if binding.to_exchange else named_queues(binding.queues, queues)
            for place, key in enumerate(binding.keys):
                taking = targets if binding.routing_keys is None else [targets[place % len(targets)]]
                for target in taking:
                    weight = "1" if types[binding.exchange] == "consistent_hash" else ""
                    found[Bound(binding.exchange, target, to_exchange, key or weight, headers, binding.match)] = None
        return list(found)

    def shards(self, queues: Sequence[str]) -> dict[str, list[str]]:
        """Return {consistent hash exchange: its queues}, in the order of ``queues``."""
        hashing = {exchange.name for exchange in self.exchanges if exchange.type == "consistent_hash"}
        shards: dict[str, list[str]] = {name: [] for name in sorted(hashing)}
        for bound in self.bound(queues):
            if bound.exchange in hashing:
                shards[bound.exchange].append(bound.destination)
        return {name: sorted(bound, key=list(queues).index) for name, bound in shards.items()}

    def reached(self, queues: Sequence[str]) -> list[Reached]:
        """Return the queues that each turn leads to."""
        router = self.router(queues)
        return [router.reached(*turn) for turn in self.turns]

    def may_take(self, queues: Sequence[str]) -> list[frozenset[str]]:
        """Return the queues that a message of each turn may go to. Only the broker knows which shard takes it."""
        shards = self.shards(queues)
        return [one.queues.union(*(shards[name] for name in one.shards)) for one in self.reached(queues)]

    def router(self, queues: Sequence[str]) -> Router:
        exchanges = {one.name: (one.type, one.alternate_exchange) for one in self.exchanges}
        return Router(exchanges, self.bound(queues))

    def problems(self, queues: Sequence[str]) -> Iterator[str]:
        """Yield contradictions, and turns that lead nowhere. Raise ValueError if a binding names an unknown queue."""
        return (f"routing: {trouble}" for trouble in self._troubles(queues))

    def _troubles(self, queues: Sequence[str]) -> Iterator[str]:
        yield from self._unknown(queues)
        yield from self._wrong_kinds()
        yield from self._torn_shards(queues)
        turns = self.turns
        if len(turns) > TURNS_MAX:
            yield f"publish has {len(turns)} routing keys; a load has at most {TURNS_MAX}"
        for turn, reached in zip(turns, self.reached(queues), strict=True):
            if not reached.queues and not reached.shards:
                yield (
                    f"a message to {_described(turn)} leads to no queue, so a broker returns it; bind a queue by "
                    "that key, or give the exchange an alternate_exchange"
                )

    def _unknown(self, queues: Sequence[str]) -> Iterator[str]:
        names = [exchange.name for exchange in self.exchanges]
        if twice := [name for name in names if names.count(name) > 1]:
            yield f"two exchanges have the name {twice[0]}; give each a name of its own"
        if taken := [name for name in names if name.startswith(("amq.", "declar"))]:
            yield f"the exchange {taken[0]} has a reserved name; names must not begin with amq. or declar"
        used = [
            *((one.alternate_exchange, f"the alternate_exchange of {one.name}") for one in self.exchanges),
            *((one.to_exchange, "a binding's to_exchange") for one in self.bindings),
            *((one.exchange, "a binding") for one in self.bindings),
            *((one.exchange, "publish") for one in self.publish),
        ]
        for name, user in used:
            if name is not None and name != DEFAULT_EXCHANGE and name not in names:
                yield f"{user} names {name!r}, and exchanges are {', '.join(names) or 'none'}"
        for binding in self.bindings:
            named_queues(binding.queues, queues)
        for turn in self.turns:
            if turn.exchange == DEFAULT_EXCHANGE and turn.routing_key not in queues:
                yield (
                    f"publish has {turn.routing_key!r} for the default exchange, whose key is a queue's name, such as "
                    f"{queues[0]}; or name an exchange"
                )

    def _wrong_kinds(self) -> Iterator[str]:
        types = {exchange.name: exchange.type for exchange in self.exchanges}
        for binding in self.bindings:
            kind = types[binding.exchange]
            if (binding.headers or binding.match != "all") and kind != "headers":
                yield f"a binding of {binding.exchange} has headers or match, which go with type: headers; it is {kind}"
            if kind != "consistent_hash":
                continue
            weight = binding.routing_key or "1"
            if not (weight.isdecimal() and weight.isascii() and 1 <= int(weight) <= WEIGHT_MAX):
                yield (
                    f"the routing_key of a binding of {binding.exchange} is {weight!r}; of a consistent_hash exchange "
                    f"it is a queue's weight, a number from 1 to {WEIGHT_MAX}"
                )
            if binding.to_exchange is not None:
                yield f"{binding.exchange} is bound to an exchange; a consistent_hash one is bound to queues only"

    def _torn_shards(self, queues: Sequence[str]) -> Iterator[str]:
        """Yield consistent hash exchanges without a queue, and their queues that also take other messages."""
        bound, shards = self.bound(queues), self.shards(queues)
        for name, its in shards.items():
            if not its:
                yield f"the consistent_hash exchange {name} has no queue; bind some to it"
            if twice := [queue for queue in its if its.count(queue) > 1]:
                yield f"{twice[0]} is bound to {name} twice, and a broker takes only the first binding; leave one out"
            elsewhere = {one.destination for one in bound if one.exchange != name and not one.to_exchange}
            elsewhere |= {turn.routing_key for turn in self.turns if turn.exchange == DEFAULT_EXCHANGE}
            if both := sorted(elsewhere & set(its)):
                yield f"{both[0]} is bound to the consistent_hash exchange {name}; nothing else may lead there"


def named_queues(named: str | Sequence[str], queues: Sequence[str]) -> list[str]:
    """Return the queues of the load that a binding names, each once. Raise ValueError if one does not exist."""
    found: dict[str, None] = {}
    for name in (named,) if isinstance(named, str) else named:
        service = name.removeprefix(SERVICE_PREFIX)
        of_service = [queue for queue in queues if queue.rpartition("-")[0] == service and service != name]
        taken = list(queues) if name == "all" else of_service or [queue for queue in queues if queue == name]
        if not taken:
            few = ", ".join(queues[:5]) + (", ..." if len(queues) > 5 else "")
            raise ValueError(f"routing: a binding names {name!r}; queues are {few}; write these, service:NAME or all")
        found |= dict.fromkeys(taken)
    return list(found)


def _described(turn: PublishArguments) -> str:
    headers = f" and the headers {dict(turn.headers)}" if turn.headers else ""
    return f"{turn.exchange or 'the default exchange'} with the routing key {turn.routing_key!r}{headers}"
