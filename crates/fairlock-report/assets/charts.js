// Draws the charts of a page with Observable Plot. Each chart's data is the JSON beside it; its
// structure is fairlock_report::chart::Picture. Colours are custom properties of the style sheet, so a chart follows
// the light or dark of the page without being drawn again.
(() => {
"use strict";

// ---- Figures in words, as fairlock_report::quantity writes them ----

function number(value) {
  if (value == null || !Number.isFinite(value)) return "∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.095) return value.toFixed(2);
  return size >= 0.0005 ? String(+value.toFixed(4)) : value.toExponential(1);
}
function scaled(value, steps) {
  const [scale, unit] = steps.find(([scale]) => Math.abs(value) >= scale * 0.9995) ?? steps.at(-1);
  return number(value / scale) + unit;
}
const time = (ns) => scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
const count = (value) => Number.isInteger(value) && Math.abs(value) < 1000 ? String(value)
  : scaled(value, [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
const UNITS = {
  "time": time,
  "per-second": (value) => `${count(value)}/s`,
  "bytes-per-second": (value) => `${number(value / 1e6)} MB/s`,
  "count": count,
  "share": (value) => `${number(value * 100)} %`,
  "number": number
};
// A tick needs no more digits than it has: 1k, not 1.00k.
const tick = (unit) => (value) => value === 0 ? "0" : UNITS[unit](+value.toPrecision(3))
  .replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
// A figure is [median] or [median, low, high]; what is beyond all numbers is null.
const median = (figure) => figure[0] ?? Infinity;
const low = (figure) => figure.length > 1 ? figure[1] ?? Infinity : median(figure);
const high = (figure) => figure.length > 1 ? figure[2] ?? Infinity : median(figure);
const words = (unit, figure, {interval}) => figure.length > 1
  ? `${UNITS[unit](median(figure))}\n${interval}: ${UNITS[unit](low(figure))} to ${UNITS[unit](high(figure))}`
  : UNITS[unit](median(figure));

// ---- Looks: 0 has a colour and a symbol of its own; the others have ten colours, six symbols and five dashes ----

const SYMBOLS = ["square", "triangle", "diamond", "star", "cross", "wye"];
const DASHES = [undefined, "7 3", "2 3", "9 3 2 3", "4 2 1 2"];
const isRole = (look) => typeof look === "string";
const color = (look) => `var(--${isRole(look) ? look : `c${look === 0 ? 0 : 1 + (look - 1) % 10}`})`;
const symbol = (look) => look === 0 ? "circle" : isRole(look) ? "square" : SYMBOLS[(look - 1) % 6];
const dash = (look) => isRole(look) || look === 0 ? undefined : DASHES[Math.floor((look - 1) / 10) % 5];

// ---- Parts of all charts ----

const TEXT = 13;
const LETTER = 7.2;
const widest = (names) => Math.max(0, ...names.map((name) => name.length)) * LETTER;
const cut = (name, room) => name.length * LETTER <= room ? name : `${name.slice(0, Math.max(3, Math.floor(room / LETTER) - 1))}…`;
// Times have their units at the ticks.
const unitOf = (axis) => ({"per-second": "per second", "bytes-per-second": "MB/s", "share": "%"})[axis.unit];
const titleOf = (axis) => {
  const unit = unitOf(axis);
  return [axis.title, !unit || axis.title.includes(unit) ? "" : unit].filter(Boolean).join(", ");
};

// Where figures stand on an axis: see fairlock_report::chart::Scale.
function scaleOf({scale}) {
  if (scale.scale === "linear") {
    const clamp = (value) => Math.min(Math.max(value, scale.low), scale.high);
    return {type: "linear", domain: [scale.low, scale.high], start: scale.low, place: clamp, isBelow: () => false};
  }
  const {low, high, zero} = scale;
  const place = (value) => !(value > 0) ? zero ?? low : Math.min(Math.max(value, low), high);
  const ticks = [];
  const few = Math.log10(high / low) <= 2;
  for (let decade = low; decade <= high; decade *= 10) {
    for (const step of few ? [1, 2, 5] : [1]) if (decade * step <= high) ticks.push(+(decade * step).toPrecision(3));
  }
  if (zero != null) ticks.unshift(zero);
  const start = zero == null ? low : zero / 1.25;
  return {type: "log", domain: [start, high], ticks, zero, start, place, isBelow: (value) => value > 0 && value < low};
}
// Plot leaves some ticks of a logarithmic axis without a label, if it may.
const axisTicks = (at, unit) => at.ticks
  ? {ticks: at.ticks, text: (value) => value === at.zero ? "0" : tick(unit)(value)}
  : {ticks: 5, tickFormat: tick(unit)};
const zeroRule = (rule, at) => at.zero == null ? [] : [rule([at.zero], {strokeOpacity: 0.6, strokeDasharray: "3 3"})];

function tip(points) {
  const options = {x: "x", y: "y", title: (point) => point.text, fontSize: TEXT, lineWidth: 24, textPadding: 9};
  return Plot.tip(points, Plot.pointer({...options, maxRadius: 60}));
}
function plot(width, options) {
  return Plot.plot({
    width, ...options,
    style: `--plot-background: var(--card); background: none; color: inherit; font: ${TEXT}px system-ui, sans-serif; overflow: visible`
  });
}
const rowsHeight = (rows) => rows * 24;

// ---- One function for each kind of picture: (spec, width) => {height, legend, points, draw} ----
// The height and the legend are known before anything is drawn, so nothing below moves when it is; `draw` returns the
// SVG. `points` have x and y in the units of the axes, what they say (`text`), and their series.

function lines(spec, width) {
  const at = scaleOf(spec.y), last = spec.places.length - 1;
  const names = spec.series.map(({name}) => name);
  const direct = width >= 480 && names.length > 1;
  const points = spec.series.flatMap((series, index) => series.points.map(([x, figure]) => ({
    x, y: at.place(median(figure)), low: at.place(low(figure)), high: at.place(high(figure)), series: index, look: series.look,
    isThere: at.zero == null || median(figure) > 0, below: at.isBelow(median(figure)),
    text: `${series.name}\n${spec.places[x]}${/^\d/.test(spec.places[x]) ? ` ${spec.x}` : ""}: ${words(spec.y.unit, figure, spec)}`
  })));
  const of = (index) => points.filter((point) => point.series === index);
  const height = Math.round(Math.min(400, Math.max(270, width * 0.55)));
  const draw = () => plot(width, {
    height, marginLeft: 66, marginBottom: 46, marginTop: 34,
    marginRight: direct ? widest(names) + 34 : 18,
    x: {domain: [-0.15, last + 0.12], label: null}, y: {type: at.type, domain: at.domain, label: null},
    marks: [
      Plot.gridY(at.ticks ?? 5, {strokeOpacity: 0.14}), ...zeroRule(Plot.ruleY, at),
      Plot.axisY({...axisTicks(at, spec.y.unit), tickSize: 4, label: titleOf(spec.y), labelArrow: "none", labelOffset: 60}),
      Plot.axisX(spec.places.map((_, index) => index), {tickFormat: (x) => spec.places[x], tickSize: 4, label: spec.x, labelAnchor: "center", labelArrow: "none"}),
      ...spec.series.flatMap((series, index) => [
        Plot.line(of(index), {x: "x", y: "y", stroke: color(series.look), strokeWidth: series.look === 0 ? 3 : 1.8, strokeDasharray: dash(series.look), className: `series-${index}`}),
        Plot.link(of(index), {x1: "x", x2: "x", y1: "low", y2: "high", stroke: color(series.look), strokeWidth: 1.2, className: `series-${index}`}),
        Plot.dot(of(index), {x: "x", y: "y", symbol: symbol(series.look), r: 4, stroke: color(series.look), fill: (point) => point.isThere && !point.below ? color(series.look) : "var(--card)", className: `series-${index}`})
      ]),
      Plot.text(points.filter((point) => point.below), {x: "x", y: "y", text: () => "↓", dy: -12, fontSize: 12}),
      tip(points)
    ]
  });
  const drawAll = () => {
    const svg = draw();
    if (direct) labels(svg, spec.series, (index) => of(index).at(-1));
    return svg;
  };
  return {height, legend: direct ? null : spec.series, points, draw: drawAll};
}

// Each name at the end of its line, moved apart where they would overlap.
function labels(svg, series, lastOf) {
  const [x, y] = [svg.scale("x"), svg.scale("y")], STEP = 17;
  const [left, right] = x.range, [bottom, top] = y.range;
  const ends = series.flatMap(({name, look}, index) => {
    const end = lastOf(index);
    return end ? [{name, look, index, x: x.apply(end.x), y: y.apply(end.y)}] : [];
  }).sort((one, other) => one.y - other.y);
  let next = top;
  for (const end of ends) { end.at = Math.max(end.y, next); next = end.at + STEP; }
  next = bottom;
  for (const end of ends.toReversed()) { end.at = Math.min(end.at, next); next = end.at - STEP; }
  const add = (name, attributes, text = "") => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    svg.append(element);
  };
  for (const end of ends) {
    const group = `series-${end.index}`, stroke = color(end.look);
    add("path", {d: `M${end.x + 7},${end.y}L${right + 10},${end.at}`, stroke, "stroke-opacity": 0.5, class: group});
    add("text", {x: right + 14, y: end.at, dy: "0.32em", "text-anchor": "start", fill: stroke, "font-weight": end.look === 0 ? 700 : 500, class: group}, end.name);
  }
}

// Names beside horizontal bars, and headings above groups of them.
function rowAxis(rows, room) {
  const text = {x: null, frameAnchor: "left", y: "row", fill: "currentColor", title: "label"};
  return [
    Plot.text(rows.filter((row) => !row.isHeading), {...text, dx: -8, textAnchor: "end", text: (row) => cut(row.label, room)}),
    Plot.text(rows.filter((row) => row.isHeading), {...text, textAnchor: "start", text: "label", fontWeight: 600})
  ];
}

function bars(spec, width) {
  const at = scaleOf(spec.axis), unit = spec.axis.unit, rows = [], points = [];
  const names = Object.keys(spec.looks);
  let row = 0;
  for (const group of spec.groups) {
    const height = spec.by_group ? 0.62 : 1;
    if (spec.by_group) rows.push({row: row + (group.bars.length * height) / 2, label: group.name});
    else if (group.name) rows.push({row: row++ + 0.6, label: group.name, isHeading: true});
    for (const bar of group.bars) {
      const look = spec.looks[bar.name];
      points.push({
        x: at.place(median(bar.figure)), y: row + height / 2, y1: row + 0.1, y2: row + height - 0.1, look,
        low: at.place(low(bar.figure)), high: at.place(high(bar.figure)), series: names.indexOf(bar.name), isExact: bar.figure.length === 1,
        value: bar.note || (at.isBelow(median(bar.figure)) ? "↓ " : "") + UNITS[unit](median(bar.figure)),
        text: `${bar.name}${group.name ? `, ${group.name}` : ""}\n${bar.note || words(unit, bar.figure, spec)}`
      });
      if (!spec.by_group) rows.push({row: row + 0.5, label: bar.name});
      row += height;
    }
    row += spec.by_group ? 0.35 : 0.25;
  }
  const room = Math.min(widest(rows.filter(({isHeading}) => !isHeading).map(({label}) => label)), width * 0.38);
  const top = topOf(spec.mark);
  const height = rowsHeight(row) + top + 58;
  const right = widest(points.map(({value}) => value)) + 14;
  // A tick of a linear axis needs about this much room, and Plot may draw some more of them than it was told to.
  const few = Math.max(2, Math.min(5, Math.floor((width - room - 16 - right) / 90)));
  const draw = () => plot(width, {
    height, marginLeft: room + 16, marginRight: right, marginTop: top, marginBottom: 46,
    x: {type: at.type, domain: at.domain, label: null}, y: {domain: [row, 0], axis: null, type: "linear", range: [rowsHeight(row) + top + 4, top]},
    marks: [
      Plot.gridX(at.ticks ?? few, {strokeOpacity: 0.14}), ...zeroRule(Plot.ruleX, at),
      Plot.axisX({...axisTicks(at, unit), tickSize: 4, label: titleOf(spec.axis) + (at.type === "log" ? ", logarithmic" : ""), labelAnchor: "center", labelArrow: "none", ...(at.ticks ? {} : {ticks: few})}),
      // A look that has dashes in lines is pale in bars.
      Plot.rect(points, {x1: at.start, x2: "x", y1: "y1", y2: "y2", fill: (point) => color(point.look), stroke: (point) => color(point.look), fillOpacity: (point) => dash(point.look) ? 0.45 : 1}),
      Plot.link(points.filter((point) => !point.isExact), {x1: "low", x2: "high", y1: "y", y2: "y", stroke: "currentColor", strokeWidth: 1.5}),
      ...mark(spec.mark), ...rowAxis(rows, room),
      Plot.text(points, {x: "high", y: "y", text: "value", dx: 6, textAnchor: "start", fontSize: 12}),
      tip(points)
    ]
  });
  return {height, legend: spec.by_group ? names.map((name) => ({name, look: spec.looks[name]})) : null, points, draw};
}

// A figure to compare with, and the room above the rows for its name.
const mark = (mark) => mark ? [
  Plot.ruleX([mark[0]], {strokeDasharray: "4 4", strokeOpacity: 0.7}),
  Plot.text([mark], {x: "0", y: () => 0, text: "1", dy: -8, fontSize: 12})
] : [];
const topOf = (mark) => mark ? 22 : 8;

function stacks(spec, width) {
  const at = scaleOf(spec.axis), unit = spec.axis.unit, points = [], notes = [], legend = new Map();
  const rows = spec.stacks.map(({name}, row) => ({row: row + 0.5, label: name}));
  const room = Math.min(widest(rows.map(({label}) => label)), width * 0.38);
  const right = Math.max(24, widest(spec.stacks.map(({note}) => note ?? "")) + 12);
  const perUnit = (width - room - 16 - right) / (at.domain[1] - at.domain[0]);
  spec.stacks.forEach(({name, parts, note}, row) => {
    let end = 0;
    for (const {role, look, value} of parts) {
      legend.set(role, look);
      const said = unit === "share" ? `${Math.round(value * 100)} %` : UNITS[unit](value), fits = value * perUnit > said.length * LETTER + 6;
      points.push({x1: end, x2: end + value, x: end + value / 2, y: row + 0.5, row, look, inside: fits && said !== note ? said : "", text: `${name}\n${role}: ${UNITS[unit](value)}`, series: [...legend.keys()].indexOf(role)});
      end += value;
    }
    if (note) notes.push({x: end, y: row + 0.5, note});
  });
  const bottom = spec.stacks.length, top = topOf(spec.mark);
  const height = rowsHeight(bottom) + top + 58;
  const draw = () => plot(width, {
    height, marginLeft: room + 16, marginRight: right, marginTop: top, marginBottom: 46,
    x: {domain: at.domain, label: null}, y: {domain: [bottom, 0], axis: null, range: [rowsHeight(bottom) + top + 4, top]},
    marks: [
      Plot.gridX(5, {strokeOpacity: 0.14}),
      Plot.axisX({...axisTicks(at, unit), tickSize: 4, label: titleOf(spec.axis), labelAnchor: "center", labelArrow: "none", ...(width < 500 ? {ticks: 3} : {})}),
      Plot.rect(points, {x1: "x1", x2: "x2", y1: (point) => point.row + 0.12, y2: (point) => point.row + 0.88, fill: (point) => color(point.look)}),
      Plot.text(points, {x: "x", y: "y", text: "inside", fill: "var(--on-part)", fontSize: 12}),
      ...mark(spec.mark), ...rowAxis(rows, room),
      Plot.text(notes, {x: "x", y: "y", text: "note", dx: 6, textAnchor: "start", fontSize: 12}),
      tip(points)
    ]
  });
  return {height, legend: [...legend].map(([name, look]) => ({name, look})), points, draw};
}

function steps(spec, width) {
  const {edges} = spec, unit = "share", zero = edges[0] > 0 ? null : edges[1] / 2, place = (edge) => edge > 0 ? edge : zero;
  const highest = Math.max(0.01, ...spec.histograms.flatMap(({shares}) => shares));
  // A few buckets have some room around them.
  const room = zero == null ? Math.max(1, Math.sqrt(20 * edges[0] / edges.at(-1))) : 1;
  const from = place(edges[0]) / room, to = edges.at(-1) * room;
  const points = spec.histograms.flatMap(({name, look, shares}, series) => shares.map((share, bucket) => ({
    x: Math.sqrt(place(edges[bucket]) * edges[bucket + 1]), y: share, series, look,
    text: `${name}\n${edges[bucket] ? time(edges[bucket]) : "0"} to ${time(edges[bucket + 1])}: ${UNITS[unit](share)}`
  })).filter(({y}) => y > 0));
  const ticks = zero == null ? [] : [zero], decades = Math.log10(to / from);
  for (let exponent = 0; exponent < 14; exponent++) for (const step of decades <= (width > 480 ? 3 : 1.6) ? [1, 2, 5] : [1]) {
    const value = step * 10 ** exponent;
    if (value >= from && value <= to && (zero == null || value > zero * 1.6)) ticks.push(value);
  }
  const height = Math.round(Math.min(340, Math.max(250, width * 0.45)));
  const draw = () => plot(width, {
    height, marginLeft: 58, marginBottom: 46, marginTop: 34, marginRight: 18,
    x: {type: "log", domain: [from, to], label: null}, y: {domain: [0, highest * 1.05], label: null},
    marks: [
      Plot.gridY(5, {strokeOpacity: 0.14}),
      Plot.axisY({ticks: 5, tickSize: 4, tickFormat: (share) => `${+(share * 100).toPrecision(3)} %`, label: spec.title, labelArrow: "none", labelOffset: 52}),
      Plot.axisX({ticks: decades > 8 && width < 480 ? ticks.filter((_, index) => index % 2 === 0) : ticks, text: (value) => value === zero ? "0" : tick("time")(value), tickSize: 4, label: "time, logarithmic", labelAnchor: "center", labelArrow: "none"}),
      Plot.ruleY([0], {strokeOpacity: 0.4}),
      ...spec.histograms.map(({look, shares}, index) => {
        const corners = shares.flatMap((share, bucket) => [[place(edges[bucket]), share], [edges[bucket + 1], share]]);
        return Plot.line([[from, 0], [place(edges[0]), 0], ...corners, [edges.at(-1), 0], [to, 0]], {stroke: color(look), strokeWidth: look === 0 ? 3 : 2, strokeDasharray: dash(look), className: `series-${index}`});
      }),
      tip(points)
    ]
  });
  return {height, legend: spec.histograms, points, draw};
}

function ranges(spec, width) {
  const at = scaleOf(spec.axis), unit = spec.axis.unit, bottom = spec.ranges.length;
  const rows = spec.ranges.map(({name}, row) => ({row: row + 0.5, label: name}));
  const points = spec.ranges.map(({name, look, seen, interval}, index) => ({
    x: at.place(median(seen)), y: index + 0.5, look, series: index, low: at.place(low(seen)), high: at.place(high(seen)), interval,
    value: UNITS[unit](median(seen)),
    text: `${name}: ${UNITS[unit](median(seen))}\nall: ${UNITS[unit](low(seen))} to ${UNITS[unit](high(seen))}${interval ? `\n${spec.interval}: ${UNITS[unit](low(interval))} to ${UNITS[unit](high(interval))}` : ""}`
  }));
  const room = Math.min(widest(rows.map(({label}) => label)), width * 0.38), step = 30;
  const stroke = (point) => color(point.look);
  const height = bottom * step + 84;
  const draw = () => plot(width, {
    height, marginLeft: room + 16, marginRight: 56, marginTop: 26, marginBottom: 46,
    x: {domain: at.domain, label: null}, y: {domain: [bottom, 0], axis: null},
    marks: [
      Plot.gridX(5, {strokeOpacity: 0.14}), Plot.ruleX([spec.mark[0]], {strokeOpacity: 0.8}),
      Plot.text([spec.mark[1]], {x: () => spec.mark[0], y: () => 0, dy: -10, fontSize: 12, text: (text) => text}),
      Plot.axisX({...axisTicks(at, unit), tickSize: 4, label: titleOf(spec.axis), labelAnchor: "center", labelArrow: "none", ...(width < 500 ? {ticks: 3} : {})}),
      Plot.link(points, {x1: "low", x2: "high", y1: "y", y2: "y", stroke, strokeWidth: 1.5}),
      Plot.link(points.filter((point) => point.interval), {x1: (point) => at.place(low(point.interval)), x2: (point) => at.place(high(point.interval)), y1: "y", y2: "y", stroke, strokeWidth: 6}),
      Plot.dot(points, {x: "x", y: "y", r: 6, stroke, strokeWidth: 2, fill: (point) => point.interval ? stroke(point) : "var(--card)"}),
      ...rowAxis(rows, room), Plot.text(points, {x: at.domain[1], y: "y", text: "value", dx: 8, textAnchor: "start", fontSize: 12}),
      tip(points)
    ]
  });
  return {height, legend: null, points, draw};
}

function timeline(spec, width) {
  const perSlot = spec.length_ns / spec.slots, bottom = spec.threads.length, step = 22;
  const rows = spec.threads.map(({name}, row) => ({row: row + 0.42, label: name}));
  const room = Math.min(widest(rows.map(({label}) => label)), width * 0.3);
  const points = spec.threads.flatMap(({name, stretches}, row) => stretches.map(([kind, from, length]) => {
    const [x1, x2] = [from * perSlot, (from + length) * perSlot], doing = spec.kinds[kind];
    return {x1, x2, x: (x1 + x2) / 2, y1: row + doing.from * 0.84, y2: row + doing.to * 0.84, y: row + (doing.from + doing.to) * 0.42, kind, series: kind, text: `${name}\n${doing.name}: ${time(x2 - x1)}\nfrom ${x1 ? time(x1) : "0"}`};
  }));
  const arrows = spec.wake_ups.map(([by, woken, slot]) => ({x: slot * perSlot, y1: by + 0.42, y2: woken + 0.42}));
  const above = spec.mark ? 20 : 6, height = bottom * step + 52 + above;
  const mark = (spec.mark ? [spec.mark] : []).map(([x, text]) => ({x, text}));
  const draw = () => plot(width, {
    height, marginLeft: room + 16, marginRight: 30, marginTop: above, marginBottom: 46,
    x: {domain: [0, spec.length_ns], label: null}, y: {domain: [bottom, 0], axis: null},
    marks: [
      ...spec.kinds.map((doing, kind) => Plot.rect(points.filter((point) => point.kind === kind), {x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: `var(--${doing.color})`, inset: 0})),
      Plot.link(arrows, {x1: "x", x2: "x", y1: "y1", y2: "y2", stroke: "currentColor", strokeOpacity: 0.45}),
      Plot.ruleX(mark, {x: "x", strokeOpacity: 0.8, strokeDasharray: "4 3"}),
      Plot.text(mark, {x: "x", y: () => 0, dy: -10, fontSize: 12, text: "text"}),
      Plot.axisX({ticks: width < 500 ? 3 : 6, tickFormat: tick("time"), tickSize: 4, label: "time", labelAnchor: "center", labelArrow: "none"}),
      ...rowAxis(rows, room), tip(points)
    ]
  });
  const used = new Set(points.map(({kind}) => kind));
  return {height, legend: spec.kinds.flatMap((kind, index) => used.has(index) ? [{name: kind.name, color: `var(--${kind.color})`, from: kind.from, to: kind.to}] : []), points, draw};
}

const PICTURES = {lines, bars, stacks, steps, ranges, timeline};

// ---- Figures in the page: their places first; drawn when there is time, and again when their width changes ----

function legendOf(series, box) {
  const list = document.createElement("div");
  list.className = "legend";
  series.forEach(({name, look, color: own, from = 0, to = 1}, index) => {
    const entry = document.createElement("button");
    entry.type = "button";
    // A part of a row stands in the swatch where it stands in the row.
    const line = own || isRole(look) ? `<rect width="12" height="${Math.max(2, (to - from) * 12)}" y="${1 + from * 12}" fill="${own ?? color(look)}"/>`
      : `<path d="M0,7H26" stroke="${color(look)}" stroke-width="2.5" stroke-dasharray="${dash(look) ?? ""}"/>`;
    entry.innerHTML = `<svg width="${own || isRole(look) ? 12 : 26}" height="14" aria-hidden="true">${line}</svg>`;
    entry.append(name);
    const show = (only) => () => highlight(box, only);
    entry.addEventListener("pointerenter", show(index));
    entry.addEventListener("focus", show(index));
    entry.addEventListener("pointerleave", show(null));
    entry.addEventListener("blur", show(null));
    list.append(entry);
  });
  return list;
}
function highlight(box, only) {
  for (const part of box.querySelectorAll("[class^=series-]")) {
    part.classList.toggle("faded", only != null && !part.classList.contains(`series-${only}`));
  }
}

// Gives charts the legends and the heights that they will have when they are drawn. All widths are read before
// anything changes: else the page would be laid out anew for each chart.
function reserve(figures) {
  const widths = figures.map((figure) => Math.floor(figure.querySelector(".picture").clientWidth));
  figures.forEach((figure, index) => {
    if (widths[index] && figure.reservedFor !== widths[index]) reserveAt(figure, widths[index]);
  });
}
// What a chart showed at another width stays until it is drawn again.
function reserveAt(figure, width) {
  const box = figure.querySelector(".picture");
  figure.reservedFor = width;
  figure.spec ??= {...JSON.parse(figure.querySelector("script").textContent), interval: figure.dataset.interval ?? "95 %"};
  const picture = figure.picture = PICTURES[figure.spec.kind](figure.spec, width);
  const frame = document.createElement("div"), said = document.createElement("div");
  frame.className = "frame";
  frame.style.height = `${picture.height}px`;
  frame.append(...box.querySelectorAll(".frame > svg"));
  said.className = "reading";
  said.setAttribute("aria-live", "polite");
  box.replaceChildren(...(picture.legend?.length ? [legendOf(picture.legend, frame)] : []), frame, said);
}

function draw(figure) {
  if (figure.drawnAt === figure.reservedFor || !figure.picture) return;
  figure.drawnAt = figure.reservedFor;
  const {points, draw} = figure.picture, svg = draw();
  svg.removeAttribute("viewBox");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", figure.querySelector("b").textContent);
  svg.addEventListener("input", () => highlight(svg, svg.value?.series ?? null));
  figure.querySelector(".frame").replaceChildren(svg);
  browse(figure.querySelector(".reading"), svg, points);
}

// Arrow keys go from point to point, and say what they find.
function browse(said, svg, points) {
  let at = -1;
  svg.setAttribute("tabindex", "0");
  const show = (index) => {
    at = (index + points.length) % points.length;
    const point = points[at], frame = svg.getBoundingClientRect();
    const [clientX, clientY] = [frame.left + svg.scale("x").apply(point.x), frame.top + svg.scale("y").apply(point.y)];
    svg.dispatchEvent(new PointerEvent("pointermove", {pointerType: "mouse", clientX, clientY}));
    said.textContent = point.text.replaceAll("\n", " · ");
  };
  const KEYS = {ArrowRight: () => at + 1, ArrowDown: () => at + 1, ArrowLeft: () => Math.max(at, 0) - 1, ArrowUp: () => Math.max(at, 0) - 1, Home: () => 0, End: () => points.length - 1};
  svg.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || !points.length) return;
    event.preventDefault();
    show(KEYS[event.key]());
  });
  svg.addEventListener("blur", () => {
    at = -1;
    said.textContent = "";
    svg.dispatchEvent(new PointerEvent("pointerleave", {pointerType: "mouse"}));
  });
}

const waiting = new Set();
function drawNext() {
  const [figure] = waiting;
  if (!figure) return;
  waiting.delete(figure);
  try { draw(figure); } finally { setTimeout(drawNext); }
}
const widths = new ResizeObserver((entries) => {
  const idle = waiting.size === 0;
  const figures = entries.map(({target}) => target.closest("figure"));
  reserve(figures);
  figures.forEach((figure) => waiting.add(figure));
  if (idle) setTimeout(drawNext);
});

const boxes = document.querySelectorAll("figure.chart > .picture");
const reserveAll = () => reserve([...boxes].map((box) => box.closest("figure")));
reserveAll();
// What is unfolded for a link has its place at once, too.
addEventListener("unfolded", reserveAll);

// Plot is packed in the page, and becomes the variable `Plot`. Without it there are the tables of values.
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(plain).text();
  document.head.append(script);
}
unpack(document.getElementById("plot").textContent).then(
  () => boxes.forEach((box) => widths.observe(box)),
  () => boxes.forEach((box) => { box.hidden = true; })
);
})();
