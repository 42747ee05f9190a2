"""A broker answers a method of a client with an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.nemesis.on_methods import MethodStep
from rabbitmq_resilience.tap.method_rules import Treatment


class AnswerMethod(MethodStep):
    """A tap answers in place of the broker with the error ``code`` and ``text``, in the broker's form:
    it closes the channel (403, 404, 405, 406, ...) or the connection (320, 501 to 506, 530, 540, 541). The broker sees
    that the channel, or the connection, is closed. ``method``, ``process`` and ``times`` are as in
    ``hold_method``."""

    fault: Literal["answer_method"] = "answer_method"
    code: int
    text: Annotated[str, Field(max_length=255)] = ""

    example: ClassVar[str] = "method: queue.declare, code: 404"
    treatment: ClassVar[Treatment] = "answer"

    def _own_fields(self) -> Mapping[str, Any]:
        return {"code": self.code, "text": self.text}
