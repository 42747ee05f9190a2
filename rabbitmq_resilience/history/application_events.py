"""Define the events of the user's own application, and of the tap that it connects through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rabbitmq_resilience.history.event_base import Event

#: Why a queue may be gone, and its consumers with it: reasons of ``ApplicationUseEvent.skipped``.
EXCLUSIVE = "it is exclusive, and gone with its connection"
AUTO_DELETE = "it is deleted with its last consumer"
NOT_DURABLE = "it is not durable"
EXPIRES = "it expires without consumers"
GOES_ITSELF = frozenset({EXCLUSIVE, AUTO_DELETE, NOT_DURABLE, EXPIRES})


@dataclass(frozen=True, kw_only=True)
class ApplicationEvent(Event):
    """An event of a process of the user's application: started, ended (by itself, with its exit ``status`` and the last
    lines of its output as ``detail``), stopped (as it was asked to), killed (on purpose), or hung (killed as it did not
    end when it was asked to). ``life``: the number of the process, from 0."""

    kind: ClassVar[str] = "application"

    process: str
    event: str
    life: int = 0
    pid: int | None = None
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ApplicationUseEvent(Event):
    """How the application used its brokers, as the tap saw it.

    - ``processes``: by process its numbers of messages ``published`` (``plain``: without confirms or transactions;
      ``optional``: not mandatory), ``delivered`` (``automatic``: acknowledged as they were sent; ``unlimited``: without
      a limit of prefetch), ``acknowledged``, ``returned`` to their queue with the channel that they came on, and
      ``unsettled`` at the end; ``unsettled_in``: of these the number by queue.
    - ``work`` of a process whose program wrote lines about its work: how often it ``worked_on`` and ``committed``
      messages; the messages that it ``acknowledged``, and of these the ones that its program never committed
      (``uncommitted``), or only later (``early``, by ``early_s_max`` at most); commits of messages that did not come
      (``unmatched``); lines that say nothing (``unread``, ``first_unread``).
    - ``plain_lost``: messages without confirms that did not arrive, by process; ``may_have_expired``: messages with a
      time to live of their own that did not. ``order``: by queue how many deliveries could be ``judged``, came to
      several consumers at a time (``shared``), or cannot be distinguished (``equal``); None in older records.
    - ``skipped``: queues whose messages may be gone by design, each with the reason. ``foreign``: deliveries of what no
      process published."""

    kind: ClassVar[str] = "application_use"

    processes: Mapping[str, Mapping[str, Any]]
    plain_lost: Mapping[str, int] = field(default_factory=dict)
    may_have_expired: Mapping[str, int] = field(default_factory=dict)
    order: Mapping[str, Mapping[str, int]] | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    foreign: int = 0


@dataclass(frozen=True, kw_only=True)
class UncommittedEvent(Event):
    """A message that ``process`` took from ``queue`` and acknowledged at that moment, and that its program never
    committed, though it says what it commits."""

    kind: ClassVar[str] = "uncommitted"

    process: str
    queue: str


@dataclass(frozen=True, kw_only=True)
class OvertakenEvent(Event):
    """A message that came to ``process`` from ``queue`` at that moment, though one came before it that ``publisher``
    published after it on the same channel; ``sent_us`` and ``later_us``: when the two were published."""

    kind: ClassVar[str] = "overtaken"

    process: str
    queue: str
    publisher: str
    sent_us: int
    later_us: int


@dataclass(frozen=True, kw_only=True)
class WireEvent(Event):
    """What a tap saw of a ``connection`` in addition to messages: opened, client, tuned, connected, channel_closed,
    consuming, cancelled, blocked, silent, unreadable, lost or closed. ``channel`` is 0 for the connection itself."""

    kind: ClassVar[str] = "wire"

    connection: int
    what: str
    channel: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
