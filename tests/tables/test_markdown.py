from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from rabbitmq_resilience.report.markdown_tables import markdown


def made(tmp_path: Path, text: str, **shown: object) -> str:
    template = tmp_path / "made.md.j2"
    template.write_text(text)
    return markdown(template, **shown)


def test_what_is_shown_stays_in_its_cell(tmp_path: Path) -> None:
    assert made(tmp_path, "| {{ said }} | {{ count }} |\n", said="a | b\nc", count=3) == "| a / b c | 3 |\n"


def test_what_a_macro_makes_stays_in_its_cell(tmp_path: Path) -> None:
    macro = "{% macro cell(said) %}\n{{ said }},\nmore\n{% endmacro %}\n"
    assert made(tmp_path, macro + "| {{ cell(said) }} |", said="a|b") == "| a/b, more |"


def test_prose_stays_unchanged(tmp_path: Path) -> None:
    assert made(tmp_path, "{{ said | prose }}", said="a | b\n\n<c>") == "a | b\n\n<c>"


@pytest.mark.parametrize("text", ["{{ missing }}", "{{ missing | prose }}", "{{ known.missing }}"])
def test_a_name_that_is_not_given_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UndefinedError):
        made(tmp_path, text, known={})


def test_a_table_of_values(tmp_path: Path) -> None:
    text = '{{ table(["", "count"], rows, numbers=["count"]) }}\n'
    assert made(tmp_path, text, rows=[("a|b", 1), ("", 2)]) == "| | count |\n| --- | ---: |\n| a/b | 1 |\n|  | 2 |\n"


def test_a_table_whose_cells_are_in_the_template(tmp_path: Path) -> None:
    text = '{% call(row) table(["a"] + more, rows) %}\n{{ row }} | <{{ row * 2 }}>\n{% endcall +%}\nafter\n'
    expected = "| a | b |\n| --- | --- |\n| x/ | <x/x/> |\nafter\n"
    assert made(tmp_path, text, rows=["x|"], more=["b"]) == expected
