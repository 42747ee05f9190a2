"""A method never arrives, such as a confirm that a client waits for."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.on_methods import MethodStep
from rabbitmq_resilience.tap.method_rules import Treatment


class DropMethod(MethodStep):
    """A tap drops a method, with its content if it has one. Nothing of this kind happens on a network
    that works: it shows what a client does when a reply never comes. ``method``, ``process`` and ``times`` are as in
    ``hold_method``."""

    fault: Literal["drop_method"] = "drop_method"

    example: ClassVar[str] = "method: confirms"
    treatment: ClassVar[Treatment] = "drop"
