"""Name the cases that are judged wrongly today, with the answer that is given."""

from __future__ import annotations

KNOWN_WRONG: dict[str, str] = {
    "expect recovery; recovery INVALID, no_loss UNKNOWN (nothing is known of losses)": "passes",
    "confirms: none: two swapped over a lost connection, which nothing promises": "INVALID",
    "unacked: c1 leads q2 and says 3 until 94; a1, which led it before, says 0 at 95": "VALID",
}
