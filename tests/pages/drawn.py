"""What a person sees of the panels of a page that is open in a browser: read off what was drawn on each canvas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.pages.browser import Page

#: Runs before a page's own script, and keeps beside each canvas what was drawn on it since its width was set, which
#: empties it.
RECORDER = """{
  const width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
  Object.defineProperty(HTMLCanvasElement.prototype, "width", {
    ...width, set(value) { this.drawn = { texts: [], boxes: [], lines: [] }; width.set.call(this, value); },
  });
  const pen = CanvasRenderingContext2D.prototype;
  const note = (name, how) => {
    const plain = pen[name];
    pen[name] = function (...given) { how(this, this.canvas.drawn, ...given); return plain.apply(this, given); };
  };
  note("fillText", (on, drawn, text, x, y) => drawn.texts.push({ text, x, y }));
  note("fillRect", (on, drawn, x, y, width) => drawn.boxes.push({ x, y, width, alpha: on.globalAlpha }));
  note("beginPath", (on) => { on.points = []; });
  note("moveTo", (on, drawn, x, y) => on.points.push([x, y]));
  note("lineTo", (on, drawn, x, y) => on.points.push([x, y]));
  note("stroke", (on, drawn) => drawn.lines.push({ colour: on.strokeStyle, points: on.points }));
}"""

_PANELS = """
[...document.querySelectorAll("figure")].map((figure) => {
  const canvas = figure.querySelector("canvas"), { left, top, width, height } = canvas.getBoundingClientRect();
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return { title: figure.querySelector("strong").textContent, left, top, width, height, ...canvas.drawn,
    inked: pixels.some((byte) => byte > 0) };
})
"""

_KEYS = """
[...document.querySelectorAll("figure button")].map((key) => {
  const { left, top, width, height } = key.getBoundingClientRect();
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = getComputedStyle(key.querySelector("i")).backgroundColor;
  const panel = [...document.querySelectorAll("figure")].indexOf(key.closest("figure"));
  return { panel, x: left + width / 2, y: top + height / 2, colour: pen.fillStyle, value: key.lastChild.textContent,
    pressed: key.ariaPressed === "true" };
})
"""


@dataclass(frozen=True)
class Panel:
    """``texts``, ``boxes`` and ``lines`` are what was drawn, in the panel's own pixels."""

    title: str
    left: float
    top: float
    width: float
    height: float
    inked: bool
    texts: list[dict[str, Any]]
    boxes: list[dict[str, Any]]
    lines: list[dict[str, Any]]

    @property
    def shades(self) -> list[tuple[float, float]]:
        """Where each fault's window begins and ends: the palest boxes."""
        return [(box["x"], box["x"] + box["width"]) for box in self.boxes if box["alpha"] < 0.1]

    @property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """By their colours. Lines of the background have two points."""
        return {line["colour"]: line["points"] for line in self.lines if len(line["points"]) > 2}


@dataclass(frozen=True)
class Key:
    """What stands above a panel for one of its curves: a button."""

    panel: int
    x: float
    y: float
    colour: str
    value: str
    pressed: bool


@dataclass(frozen=True)
class Axis:
    """The time axis below the last panel."""

    left: float
    right: float
    labels: list[str]


def panels(page: Page) -> list[Panel]:
    return [Panel(**panel) for panel in page.value(_PANELS)]


def keys(page: Page) -> list[Key]:
    return [Key(**key) for key in page.value(_KEYS)]


def axis(page: Page) -> Axis:
    """Its line is the lowest that goes from side to side, its labels are the lowest texts."""
    last = panels(page)[-1]
    level = (line["points"] for line in last.lines if len({y for _, y in line["points"]}) == 1)
    (left, _), (right, _) = max(level, key=lambda points: points[0][1])
    lowest = max(text["y"] for text in last.texts)
    return Axis(left, right, [text["text"] for text in last.texts if text["y"] == lowest])


def drag(page: Page, panel: Panel, start: float, end: float) -> None:
    """From one place in a panel to another, in its own pixels."""
    page.drag(panel.left + start, panel.top + 10, to=panel.left + end)


def middle(page: Page, selector: str) -> tuple[float, float]:
    box = page.value(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def text(page: Page, selector: str) -> str:
    return str(page.value(f"document.querySelector('{selector}').textContent"))
