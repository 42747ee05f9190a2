"""Name the cases that are judged wrongly today, with the answer that is given."""

from __future__ import annotations

KNOWN_WRONG: dict[str, str] = {
    "expect recovery; recovery INVALID, no_loss UNKNOWN (nothing is known of losses)": "passes",
    "confirms: none: two swapped over a lost connection, which nothing promises": "INVALID",
    "autoheal: nobody restarts; c1 is killed 2 s before it is late": "VALID",
    "autoheal: nobody restarts; b1 is killed for 1 s after 28 s and every 28 s": "VALID",
    "unacked: c1 leads q2 and says 3 until 94; a1, which led it before, says 0 at 95": "VALID",
}
