"use strict";
// Draw the panels of a run on one time axis. The page contains the data as JSON (see pages/charts.py).
(() => {
  const run = JSON.parse(document.getElementById("run-data").textContent);
  const root = document.getElementById("timeline");
  const tip = document.getElementById("tip");
  for (const button of document.querySelectorAll(".copy")) {
    const command = button.previousElementSibling;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {  // there is no clipboard, or this page may not use it
        getSelection().selectAllChildren(command);
        button.textContent = "Selected";
      }
    });
  }
  if (!root) return;
  const RIGHT = 14, TOP = 6, LANE = 22, CURVES_HEIGHT = 150, AXIS_HEIGHT = 24, SPAN_LEAST_S = 0.5;
  const full = [0, Math.max(run.duration_s, 1)];
  let view = full, colours = {}, gutter = 64;

  const element = (tag, parent, properties = {}) => parent.appendChild(Object.assign(document.createElement(tag), properties));
  const cursor = element("div", root), selection = element("div", root);
  Object.assign(cursor.style, { position: "absolute", width: "1px", pointerEvents: "none", visibility: "hidden", background: "var(--soft)" });
  Object.assign(selection.style, { position: "absolute", pointerEvents: "none", visibility: "hidden", background: "var(--c1)", opacity: 0.18 });

  // ---- numbers for people
  const trim = (value, digits) => String(Number(value.toPrecision(digits)));
  const grouped = (value) => Math.round(value).toLocaleString("en-US");
  const FORMATS = {
    "messages": (v) => grouped(v),
    "count": (v) => grouped(v),
    "messages/s": (v) => (v > 0 && v < 10 ? trim(v, 2) : grouped(v)),
    "ms": (v) => (v >= 1000 ? trim(v / 1000, 3) + " s" : v >= 100 ? grouped(v) + " ms" : trim(v, 3) + " ms"),
    "bytes": (v) => (v >= 1e9 ? trim(v / 1e9, 3) + " GB" : trim(v / 1e6, 3) + " MB"),
    "bytes/s": (v) => (v >= 1e6 ? trim(v / 1e6, 3) + " MB/s" : trim(v / 1e3, 3) + " kB/s"),
  };
  const highest = (panel) => panel.curves.reduce((high, curve) => curve.values.reduce((a, b) => Math.max(a, b), high), 0);
  // The room for a value above its panel, in digits: so nothing moves when the value appears.
  const ROOM = { "ms": 7, "bytes": 7, "bytes/s": 9 };
  const room = (panel) => ROOM[panel.unit] ?? Math.max(grouped(highest(panel)).length, 5);
  const clock = (s, decimals) => {
    const rounded = Number(s.toFixed(decimals));
    if (full[1] < 120) return rounded + " s";
    const h = Math.floor(rounded / 3600), m = Math.floor((rounded % 3600) / 60);
    const [whole, part] = String(Number((rounded % 60).toFixed(decimals))).split(".");
    return (h ? h + ":" + String(m).padStart(2, "0") : m) + ":" + whole.padStart(2, "0") + (part ? "." + part : "");
  };
  const decimalsOf = (step) => Math.max(0, -Math.floor(Math.log10(step)));
  const niceStep = (span, parts, steps) => {
    const raw = span / parts, power = 10 ** Math.floor(Math.log10(raw));
    return (steps ?? [1, 2, 5, 10].map((n) => n * power)).find((step) => step >= raw) ?? raw;
  };
  const timeStep = () => {
    const span = view[1] - view[0];
    return span < 60 ? niceStep(span, 10) : niceStep(span, 10, [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600]);
  };

  // ---- panels
  const panels = run.panels.map((panel) => {
    const figure = element("figure", root), caption = element("figcaption", figure);
    element("strong", caption, { textContent: panel.title });
    if (panel.note) element("em", caption, { textContent: panel.note });
    const canvas = element("canvas", figure);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", panel.title + " over time");
    const height = panel.kind === "lanes" ? panel.lanes.length * LANE + TOP : CURVES_HEIGHT;
    const shown = { ...panel, canvas, height: height + (panel.last ? AXIS_HEIGHT : 0), plot: height };
    if (panel.kind === "lanes") panel.states.forEach((state) => legendBlock(caption, state));
    else shown.curves.forEach((curve) => legendKey(caption, curve, shown));
    return shown;
  });

  function legendBlock(caption, state) {
    const key = element("span", caption, { className: "key" });
    element("i", key, { className: "block" }).style.background = `var(--${state})`;
    key.append(state);
  }

  function legendKey(caption, curve, panel) {
    const key = element("button", caption, { className: "key", type: "button", title: "Show or hide this curve" });
    element("i", key).style.background = `var(--${curve.colour})`;
    key.append(curve.name + " ");
    curve.value = element("b", key);
    curve.value.style.minWidth = room(panel) + "ch";
    key.setAttribute("aria-pressed", "true");
    key.addEventListener("click", () => {
      curve.hidden = !curve.hidden;
      key.setAttribute("aria-pressed", String(!curve.hidden));
      draw(panel);
    });
  }

  const x = (panel, s) => gutter + ((s - view[0]) / (view[1] - view[0])) * (panel.width - gutter - RIGHT);
  const seconds = (px, width) => view[0] + ((px - gutter) / (width - gutter - RIGHT)) * (view[1] - view[0]);

  function draw(panel) {
    const width = panel.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    panel.width = width;
    panel.canvas.width = width * ratio;
    panel.canvas.height = panel.height * ratio;
    panel.canvas.style.height = panel.height + "px";
    const pen = panel.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11.5px system-ui, sans-serif";
    const inside = () => { pen.save(); pen.beginPath(); pen.rect(gutter, 0, width - gutter - RIGHT, panel.plot); pen.clip(); };
    if (panel.kind === "curves") drawScale(pen, panel);
    inside();
    drawFaults(pen, panel);
    drawTimeLines(pen, panel);
    pen.restore();
    if (panel.kind === "lanes") drawLanes(pen, panel, inside);
    else { inside(); drawCurves(pen, panel); pen.restore(); }
    if (panel.last) drawAxis(pen, panel);
  }

  function drawFaults(pen, panel) {
    for (const fault of run.faults) {
      const from = x(panel, fault.start_s), to = x(panel, fault.end_s);
      pen.fillStyle = colours.fault;
      pen.globalAlpha = 0.09;
      pen.fillRect(from, 0, Math.max(to - from, 1), panel.plot);
    }
    pen.globalAlpha = 1;
  }

  function drawTimeLines(pen, panel) {
    pen.setLineDash([3, 3]);
    pen.strokeStyle = colours.phase;
    pen.globalAlpha = 0.6;
    for (const phase of run.phases.slice(1)) {
      const at = Math.round(x(panel, phase.start_s)) + 0.5;
      pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, panel.plot); pen.stroke();
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  function drawLanes(pen, panel, inside) {
    panel.lanes.forEach((lane, row) => {
      const top = TOP + row * LANE, middle = top + LANE / 2 - 2;
      pen.fillStyle = colours.soft; pen.textAlign = "right"; pen.textBaseline = "middle";
      pen.fillText(fitted(pen, lane.name, gutter - 12), gutter - 9, middle);
      inside();
      for (const { start_s, end_s, state, text, doubtful } of lane.intervals) {
        if (end_s < view[0] || start_s > view[1]) continue;
        const from = x(panel, start_s), to = Math.max(x(panel, end_s), from + 2);
        pen.fillStyle = colours[state] ?? colours.phase;
        pen.globalAlpha = doubtful ? 0.3 : state === "phase" ? 0.16 : 1;
        pen.fillRect(from, top, to - from - (state === "phase" ? 1 : 0), LANE - 5);
        pen.globalAlpha = 1;
        if (doubtful) { pen.strokeStyle = colours[state]; pen.setLineDash([4, 3]); pen.strokeRect(from + 0.5, top + 0.5, to - from - 1, LANE - 6); pen.setLineDash([]); }
        if (text && state === "phase") drawClipped(pen, text, { from: Math.max(from, gutter), to: Math.min(to, panel.width - RIGHT), middle });
        else if (text) laneText(pen, text, { from, to, middle, onColour: !doubtful && state !== "phase", right: panel.width - RIGHT });
      }
      pen.restore();
    });
  }

  function drawClipped(pen, text, { from, to, middle }) {
    pen.textAlign = "left"; pen.fillStyle = colours.ink;
    pen.fillText(fitted(pen, text, to - from - 8), from + 5, middle);
  }

  // Draw the text in its bar if it fits, else right of the bar, else left of it.
  function laneText(pen, text, { from, to, middle, onColour, right }) {
    const start = Math.max(from, gutter), end = Math.min(to, right), width = pen.measureText(text).width;
    const [at, inBar] = width + 12 < end - start ? [start + 6, true] : width + 12 < right - end ? [end + 6, false] : [start - width - 6, false];
    pen.textAlign = "left";
    pen.fillStyle = inBar && onColour ? colours.paper : colours.ink;
    pen.fillText(text, at < gutter ? start + 6 : at, middle);
  }

  function fitted(pen, text, width) {
    if (pen.measureText(text).width <= width) return text;
    while (text && pen.measureText(text + "…").width > width) text = text.slice(0, -1);
    return text && text + "…";
  }

  // ---- curves
  // Return the values in view, and on either side the next point, to which a line leads.
  function within(panel) {
    const values = [], at = panel.at_s;
    for (const curve of panel.curves) {
      if (curve.hidden) continue;
      curve.values.forEach((v, i) => { if (v !== null && (at[i + 1] ?? Infinity) > view[0] && (at[i - 1] ?? -Infinity) < view[1]) values.push(v); });
    }
    return values;
  }

  function drawScale(pen, panel) {
    const values = within(panel), high = values.reduce((a, b) => Math.max(a, b), 0);
    const bottom = panel.plot - 5, top = TOP + 6;
    let ticks = [];
    if (panel.log) {
      const least = values.reduce((a, b) => (b > 0 ? Math.min(a, b) : a), high || 1);
      const low = Math.floor(Math.log10(Math.max(least, 0.1))), up = Math.max(Math.ceil(Math.log10(Math.max(high, 0.1))), low + 1);
      panel.y = (v) => bottom - ((Math.log10(Math.max(v, 10 ** low)) - low) / (up - low)) * (bottom - top);
      for (let n = low; n <= up; n++) ticks.push(10 ** n);
    } else {
      const step = Math.max(niceStep(high || 1, 4), ["messages", "count"].includes(panel.unit) ? 1 : 0), up = Math.ceil((high || 1) / step) * step;
      panel.y = (v) => bottom - (v / up) * (bottom - top);
      for (let n = 0; n <= up + step / 2; n += step) ticks.push(n);
    }
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const tick of ticks) {
      const at = Math.round(panel.y(tick)) + 0.5;
      pen.strokeStyle = colours.line; pen.beginPath(); pen.moveTo(gutter, at); pen.lineTo(panel.width - RIGHT, at); pen.stroke();
      pen.fillStyle = colours.faint; pen.fillText(FORMATS[panel.unit](tick), gutter - 9, at);
    }
  }

  function drawCurves(pen, panel) {
    pen.lineJoin = "round";
    for (const curve of panel.curves) {
      if (curve.hidden) continue;
      pen.strokeStyle = colours[curve.colour];
      pen.fillStyle = colours[curve.colour];
      pen.lineWidth = curve.thin ? 1 : 1.6;
      pen.beginPath();
      let drawing = false;
      curve.values.forEach((value, i) => {
        if (value === null) { drawing = false; return; }
        const px = x(panel, panel.at_s[i]), py = panel.y(value);
        const alone = !drawing && (curve.values[i + 1] ?? null) === null;
        if (drawing) pen.lineTo(px, py); else pen.moveTo(px, py);
        if (alone) pen.fillRect(px - 1.5, py - 1.5, 3, 3);
        drawing = true;
      });
      pen.stroke();
    }
  }

  function drawAxis(pen, panel) {
    const step = timeStep(), decimals = decimalsOf(step);
    pen.textAlign = "center"; pen.textBaseline = "top"; pen.fillStyle = colours.soft; pen.strokeStyle = colours.faint;
    pen.beginPath(); pen.moveTo(gutter, panel.plot + 0.5); pen.lineTo(panel.width - RIGHT, panel.plot + 0.5); pen.stroke();
    for (let s = Math.ceil(view[0] / step) * step; s <= view[1] + 1e-9; s += step) {
      const at = Math.round(x(panel, s)) + 0.5;
      pen.beginPath(); pen.moveTo(at, panel.plot); pen.lineTo(at, panel.plot + 5); pen.stroke();
      const label = clock(s, decimals);
      pen.fillText(label, Math.min(at, panel.width - pen.measureText(label).width / 2 - 1), panel.plot + 8);
    }
  }

  function drawAll() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "soft", "faint", "line", "paper", "fault", "phase", "up", "paused", "suspended", "down", "cut", "slow", "blocked", "alarm", "pending", "firing", "gone", "consuming", "connected", "reconnecting",
      "c1", "c2", "c3", "c4", "c5", "c6", "c7"]) colours[name] = style.getPropertyValue("--" + name).trim();
    const pen = panels[0]?.canvas.getContext("2d");
    if (!pen) return;
    pen.font = "11.5px system-ui, sans-serif";
    const names = panels.flatMap((panel) => (panel.lanes ?? []).map((lane) => pen.measureText(lane.name).width));
    const ticks = panels.filter((panel) => panel.curves && !panel.log)
      .map((panel) => pen.measureText(FORMATS[panel.unit](1.5 * highest(panel))).width);  // the top tick may be above all values
    gutter = Math.min(Math.max(64, ...[...names, ...ticks].map((width) => width + 18)), 150);
    panels.forEach(draw);
    document.getElementById("reset").disabled = view === full;
  }

  // ---- pointer: one cursor through all panels; dragging zooms
  function nearest(at, s) {
    let low = 0, high = at.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (at[middle] < s) low = middle; else high = middle; }
    return Math.abs((at[low] ?? Infinity) - s) <= Math.abs((at[high] ?? Infinity) - s) ? low : high;
  }

  function show(s) {
    for (const panel of panels) {
      if (panel.kind !== "curves") continue;
      const i = s === null ? -1 : nearest(panel.at_s, s);
      for (const curve of panel.curves) {
        const value = i < 0 ? null : curve.values[i] ?? null;
        curve.value.textContent = s === null ? "" : value === null ? "–" : FORMATS[panel.unit](value);
      }
    }
  }

  function describe(s) {
    const decimals = decimalsOf(timeStep()) + 1;
    const phase = run.phases.find((p) => s >= p.start_s && s < p.end_s);
    const active = run.faults.filter((f) => s >= f.start_s && s < f.end_s).map((f) => f.fault);
    const states = panels.flatMap((p) => (p.kind === "lanes" && p.in_tip ? p.lanes : []))
      .map((lane) => [lane.name, lane.intervals.find((i) => s >= i.start_s && s < i.end_s)?.state])
      .filter(([, state]) => state && state !== "up").map(([name, state]) => `${name} ${state}`);
    return [clock(s, decimals), phase && `${phase.state} +${clock(s - phase.start_s, decimals)}`, active.join(" + "), states.slice(0, 4).join(", ")]
      .filter(Boolean).join("  ·  ");
  }

  let pointer = null, grip = null;
  const place = (event) => {
    const box = root.getBoundingClientRect(), canvas = panels[0].canvas.getBoundingClientRect();
    const px = Math.min(Math.max(event.clientX - canvas.left, gutter), canvas.width - RIGHT);
    const last = panels[panels.length - 1].canvas.getBoundingClientRect();
    return { s: seconds(px, canvas.width), left: px + canvas.left - box.left - root.clientLeft, top: canvas.top - box.top,
      height: last.bottom - canvas.top - AXIS_HEIGHT, room: box.width };
  };

  function follow(event) {
    pointer = event;
    const at = place(event);
    Object.assign(cursor.style, { left: at.left + "px", top: at.top + "px", height: at.height + "px", visibility: "visible" });
    tip.textContent = describe(at.s);
    const left = Math.min(at.left + 10, at.room - tip.offsetWidth - 8);
    Object.assign(tip.style, { left: left + "px", top: event.clientY - root.getBoundingClientRect().top + 16 + "px", visibility: "visible" });
    show(at.s);
    if (grip) {
      const from = Math.min(grip.left, at.left);
      Object.assign(selection.style, { left: from + "px", width: Math.abs(grip.left - at.left) + "px", top: at.top + "px", height: at.height + "px", visibility: "visible" });
    }
  }

  function leave() {
    pointer = null;
    for (const part of [cursor, tip]) part.style.visibility = "hidden";
    show(null);
  }

  function release() {
    grip = null;
    selection.style.visibility = "hidden";
  }

  // The pointer does not move, but now points at another moment.
  function look(at) {
    release();
    view = at;
    drawAll();
    if (pointer) follow(pointer);
  }
  const reset = () => look(full);

  function zoom(s, other) {
    const from = Math.min(s, other, full[1] - SPAN_LEAST_S), to = Math.max(s, other);
    look([from, Math.max(to, from + SPAN_LEAST_S)]);
  }

  root.addEventListener("pointermove", follow);
  root.addEventListener("pointerleave", leave);
  root.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.tagName !== "CANVAS") return;
    grip = place(event);
    event.target.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  root.addEventListener("pointerup", (event) => {
    if (!grip) return;
    const from = grip, to = place(event);
    if (Math.abs(to.left - from.left) > 5) zoom(from.s, to.s);
    else release();
  });
  root.addEventListener("pointercancel", release);
  root.addEventListener("dblclick", (event) => { if (event.target.tagName === "CANVAS") reset(); });
  document.getElementById("reset").addEventListener("click", reset);
  window.addEventListener("keydown", (event) => { if (event.key === "Escape") reset(); });
  window.addEventListener("resize", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
