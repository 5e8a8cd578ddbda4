"use strict";
// Everything is visible without this script; it filters, and reads numbers off the charts.

const root = document.documentElement;
const readout = document.getElementById("readout");
const chosen = { algorithm: new Set(), environment: new Set() };

// Filter: what belongs to an algorithm or an environment that is not chosen is off.

function apply() {
  for (const element of document.querySelectorAll("[data-algorithm], [data-environment]")) {
    const off = ["algorithm", "environment"].some(
      (kind) => kind in element.dataset && chosen[kind].size && !chosen[kind].has(element.dataset[kind]),
    );
    element.classList.toggle("off", off);
  }
  for (const button of document.querySelectorAll("button[data-filter]")) {
    button.setAttribute("aria-pressed", String(chosen[button.dataset.filter].has(button.dataset.number)));
  }
  const filtered = chosen.algorithm.size + chosen.environment.size > 0;
  document.body.classList.toggle("filtered", filtered);
  document.getElementById("all").hidden = !filtered;
}

// What is chosen stands in the address, by name: it survives a reload, and can be passed on.

function remember() {
  const found = new URLSearchParams();
  for (const kind of ["algorithm", "environment"]) {
    for (const button of document.querySelectorAll(`button[data-filter="${kind}"]`)) {
      if (chosen[kind].has(button.dataset.number)) found.append(kind, button.textContent);
    }
  }
  history.replaceState(null, "", found.size ? `#${found}` : location.pathname + location.search);
}

function recall() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const button of document.querySelectorAll("button[data-filter]")) {
    const { filter, number } = button.dataset;
    if (wanted.getAll(filter).includes(button.textContent)) chosen[filter].add(number);
  }
  apply();
}

function choose(kind, number, add) {
  const set = chosen[kind];
  const alone = set.has(number) && (add || set.size === 1);
  if (!add) set.clear();
  if (alone) set.delete(number);
  else set.add(number);
  apply();
  remember();
}

for (const button of document.querySelectorAll("button[data-filter]")) {
  const { filter, number } = button.dataset;
  button.title = "Click: this one alone. Ctrl- or Shift-click: this one too.";
  button.addEventListener("click", (event) => choose(filter, number, event.ctrlKey || event.shiftKey || event.metaKey));
  if (filter === "algorithm") {
    button.addEventListener("pointerenter", () => emphasise(number));
    button.addEventListener("pointerleave", () => emphasise(null));
  }
}
document.getElementById("all").addEventListener("click", () => {
  chosen.algorithm.clear();
  chosen.environment.clear();
  apply();
  remember();
});
recall();

function emphasise(number) {
  for (const curve of document.querySelectorAll(".curve")) {
    curve.classList.toggle("faint", number !== null && curve.dataset.algorithm !== number);
  }
}

// Read numbers off a chart.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: false });

function text(value) {
  if (value === null) return "-";
  return value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) ? value.toExponential(2) : plain.format(value);
}

function nearest(values, wanted) {
  let low = 0;
  let high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle;
    else high = middle;
  }
  return wanted - values[low] <= values[high] - wanted ? low : high;
}

function found(data, x, y) {
  const [left, , right] = data.bounds;
  const [scale, back] = data.log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const [first, end] = data.span.map(scale);
  const at = first + ((x - left) / (right - left)) * (end - first);
  const rows = [];
  for (const series of data.series) {
    const number = String(series.algorithm);
    if (chosen.algorithm.size && !chosen.algorithm.has(number)) continue;
    const xs = series.x.map(scale);
    const last = xs.length - 1;
    const reach = (xs[last] - xs[0]) / Math.max(1, last);
    if (at < xs[0] - reach || at > xs[last] + reach) continue;
    const place = nearest(xs, at);
    if (series.y[place] === null) continue;
    const away = series.at[place] === null ? Infinity : Math.abs(series.at[place] - y);
    rows.push({ number, label: series.label, away, y: series.y[place], low: series.low[place], high: series.high[place] });
  }
  rows.sort((one, other) => other.y - one.y);
  return { at: back(at), rows, near: rows.reduce((best, row) => (best && best.away <= row.away ? best : row), null) };
}

function show(data, { at, rows, near }, clientX, clientY) {
  const table = document.createElement("table");
  const head = table.insertRow().insertCell();
  head.colSpan = 3;
  head.textContent = `${data.x}: ${compact.format(at)}`;
  for (const row of rows) {
    const line = table.insertRow();
    line.classList.toggle("near", row === near);
    const interval = row.low === null ? "" : `[${text(row.low)}, ${text(row.high)}]`;
    for (const cell of [row.label, text(row.y), interval]) line.insertCell().textContent = cell;
  }
  readout.replaceChildren(table);
  readout.hidden = false;
  const { width, height } = readout.getBoundingClientRect();
  const left = clientX + 16 + width > innerWidth ? clientX - 16 - width : clientX + 16;
  const top = Math.min(Math.max(4, clientY - height / 2), innerHeight - height - 4);
  readout.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
}

function listen(figure) {
  const svg = figure.querySelector(":scope > svg");
  const data = JSON.parse(figure.querySelector("script").textContent);
  const [left, top, right, bottom] = data.bounds;
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  let near = null;

  function leave() {
    cursor.remove();
    readout.hidden = true;
    near = null;
    emphasise(null);
  }

  function look(clientX, clientY) {
    const frame = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / frame.width;
    const x = (clientX - frame.left) * scale;
    const y = (clientY - frame.top) * scale;
    const result = found(data, x, y);
    if (x < left || x > right || y < top || y > bottom || !result.rows.length) return leave();
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom })) cursor.setAttribute(name, value);
    svg.append(cursor);
    near = result.near;
    emphasise(near.away < 12 ? near.number : null);
    show(data, result, clientX, clientY);
  }

  // A finger that taps never moves: what it points at is looked for in the click too.
  for (const kind of ["pointermove", "pointerdown"]) {
    svg.addEventListener(kind, (event) => look(event.clientX, event.clientY));
  }
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && leave());
  svg.addEventListener("blur", leave);
  svg.addEventListener("click", (event) => {
    look(event.clientX, event.clientY);
    if (event.pointerType !== "touch" && near && near.away < 12) {
      choose("algorithm", near.number, event.ctrlKey || event.shiftKey || event.metaKey);
    }
  });

  // By keyboard: the arrows move along the chart.
  let place = 0.5;
  svg.tabIndex = 0;
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (!step) return;
    event.preventDefault();
    place = Math.min(0.99, Math.max(0.01, place + step));
    const frame = svg.getBoundingClientRect();
    const scale = frame.width / svg.viewBox.baseVal.width;
    look(frame.left + (left + place * (right - left)) * scale, frame.top + ((top + bottom) / 2) * scale);
  });
}
document.querySelectorAll("figure.chart").forEach(listen);

// Light or dark as the reader's system, until the button says otherwise; paper is light and has no lids.

document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
addEventListener("beforeprint", () => {
  for (const lid of document.querySelectorAll("details:not([open])")) {
    lid.open = true;
    lid.dataset.printed = "";
  }
});
addEventListener("afterprint", () => {
  for (const lid of document.querySelectorAll("details[data-printed]")) {
    lid.open = false;
    delete lid.dataset.printed;
  }
});
