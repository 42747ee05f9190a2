"""Write names and keys as text, also those that are no UTF-8: for brokers they are bytes.

A byte that belongs to no character of UTF-8 becomes U+FFFD and its two hexadecimal digits. So does each byte of U+FFFD
itself: no two keys are written alike, and the bytes can be had again.
"""

from __future__ import annotations

import re
from typing import Any

_MARK = "\ufffd"
_ESCAPED = re.compile(f"[\udc80-\udcff{_MARK}]")


def decode_texts(method: Any) -> None:
    """Replace the names and keys of a decoded method by the text that is recorded of them."""
    for name, value in vars(method).items():
        if isinstance(value, bytes) or (isinstance(value, str) and _MARK in value):
            setattr(method, name, recorded_text(value))


def recorded_text(value: object) -> str:
    """Return the text that is recorded of a value. Text in UTF-8 without U+FFFD is recorded unchanged."""
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
    return _ESCAPED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"{_MARK}{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape"))
