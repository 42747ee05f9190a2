"""Find the words that are not used in the package, on pages, in the README and in names of tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.structure import ROOT, committed, module_id

#: Each word, and what to write.
REFUSED = {
    r"told|tells|telling": "report, show, say, list, print, observe",
    r"besides?": "next to, during, in addition to, compared with",
    r"nobody|whoever": "the subject by its name",
    r"whatever it does": "what is meant",
    r"anew": "again",
    r"so many": "a number, or: as many",
    r"in good order": "what is meant: orderly, by its own command",
    r"as it is(?=[,.;:)]|$)": "unchanged, as given",
    r"there already": "existing, already running",
    r"what was wanted": "what was asked for",
}
_WORDS = re.compile(rf"(?<![a-z])(?i:{'|'.join(REFUSED)})(?![a-z])|(?:^|[.:] )Of (?:which|those)\b")
#: Names that files of users and records have.
_KEPT = re.compile("declared_beside_cut|created_beside_cut|received_beside|machine_told|decides_anew")
#: Places that keep such a word: what files and users have, and other people's words. The file, and a piece of the line.
EXCEPTIONS: list[tuple[str, str]] = [
    ("rabbitmq_resilience/checkers/consequences.py", "{queue, start_s, lasts_s, beside}"),
    ("rabbitmq_resilience/checkers/consequences.py", '"beside": facts'),
    ("rabbitmq_resilience/report/impact.py", "first['beside']"),
    ("rabbitmq_resilience/extensions/sweeps/capacity.py", "``beside``: results"),
    ("rabbitmq_resilience/extensions/sweeps/capacity.py", "beside: tuple["),
    ("rabbitmq_resilience/extensions/sweeps/capacity.py", "in self.beside:"),
    ("rabbitmq_resilience/extensions/sweeps/capacity.py", 'f"beside: {known'),
    ("rabbitmq_resilience/extensions/sweeps/capacity_answer.py", "of.beside"),
    ("docs/sweeps.md", "beside"),
]
_ENDS = (".py", ".md", ".j2", ".html", ".js", ".css", ".erl")


def looked_at() -> Iterator[Path]:
    """Yield the files of the package and of the documentation, and the README."""
    for path in committed():
        name = module_id(path)
        if name.endswith(_ENDS) and (name.startswith(("rabbitmq_resilience/", "docs/")) or name == "README.md"):
            yield path


def refused_words() -> Iterator[str]:
    """Yield each line that has a refused word."""
    for path in looked_at():
        name = module_id(path)
        pieces = [piece for file, piece in EXCEPTIONS if file == name]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = _WORDS.search(_KEPT.sub("", line))
            if found and not any(piece in line for piece in pieces):
                yield f"{name}:{number}: {found[0].strip()}: {line.strip()}"


def refused_test_names() -> Iterator[str]:
    """Yield each name of a test, or of a module of tests, that has a refused word."""
    words = re.compile(rf"\b(?:{'|'.join(REFUSED)}|of (?:which|those)$)(?!\w)")
    for path in committed():
        if path.suffix == ".py" and path.name.startswith("test_"):
            names = [path.stem, *re.findall(r"\bdef (test_\w+)", path.read_text(encoding="utf-8"))]
            yield from (f"{module_id(path)}: {name}" for name in names if words.search(name.replace("_", " ")))


def idle_exceptions() -> Iterator[str]:
    """Yield each exception that no line needs any more."""
    for file, piece in EXCEPTIONS:
        path = ROOT / file
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if not any(piece in line and _WORDS.search(_KEPT.sub("", line)) for line in lines):
            yield f"{file}: {piece}"
