from __future__ import annotations

from typing import Any

from rabbitmq_resilience.extensions.tables.would_notice import would_notice
from tests.messages import Messages


def verdict(title: str, word: str, *, as_expected: bool = True, **broken: str) -> dict[str, Any]:
    invariants = {name: {"verdict": "INVALID", "summary": summary} for name, summary in broken.items()}
    return {
        "title": title,
        "verdict": word,
        "as_expected": as_expected,
        "broker_version": "3.10.8",
        "driver": "local",
        "reference": "https://example.org/why",
        "invariants": {"order": {"verdict": "VALID", "summary": "0 were overtaken"}, **invariants},
    }


def out_for(longest_s: float) -> dict[str, Any]:
    return {"consequences": {"queues": {"q1": {"longest_s": longest_s}}}}


def test_it_counts_what_was_noticed_by_the_right_invariant_and_shows_the_last(message: Messages) -> None:
    runs = [
        verdict("Unsafe: no confirms", "VALID", as_expected=False),
        verdict("Unsafe: no confirms", "INVALID", no_loss="3 never arrived"),
        verdict("Unsafe: no confirms", "INVALID", no_loss="5 never arrived") | out_for(12.34),
        verdict("Unsafe: acks", "INVALID", as_expected=False, recovery="by another than expected"),
        verdict("A minority is cut off", "INVALID", no_loss="not of the corpus"),
    ]
    names = {f"Unsafe: {name}": name for name in ("no confirms", "acks", "purged")}
    text = would_notice(runs, names)
    message(next(line for line in text.splitlines() if "1 of 3" in line))
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    acks, confirms, purged = (row.strip("| ").split(" | ") for row in rows)
    assert acks == ["acks", "3.10.8", "0 of 1", "-", "-", "-", "-"]
    assert confirms[:3] == ["no confirms", "3.10.8", "2 of 3"]
    assert confirms[4:] == ["no_loss", "5 never arrived", "[reference](https://example.org/why)"]
    assert "12.3 s" in confirms[3]
    assert [*purged[:2], *purged[3:]] == ["purged", "-", "-", "-", "-", "-"]
    message("\n".join(rows))
