// Sorts the tables of a page, shows where they go on, and unfolds what a link leads to.
(() => {
"use strict";

// ---- Tables: a heading sorts, the largest first where there are numbers ----

const FACTORS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "k": 1e3, "M": 1e6, "G": 1e9};
function valueOf(cell) {
  const text = (cell?.firstChild?.textContent ?? "").trim(), found = /^[^\d∞]{0,2}?(-?\d[\d.]*(?:e[-+]?\d+)?|∞) ?(ns|µs|ms|s\b|k|M|G)?/.exec(text);
  if (!found) return {text, value: NaN};
  return {text, value: found[1] === "∞" ? Infinity : found[1] * (FACTORS[found[2]] ?? 1)};
}
function sort(table, column, heading) {
  const body = table.tBodies[0], ascending = heading.getAttribute("aria-sort") === "descending";
  const isText = heading.matches(".heading, .words, .text"), up = isText ? heading.getAttribute("aria-sort") !== "ascending" : ascending;
  const rows = [...body.rows].map((row) => ({row, ...valueOf(row.cells[column])}));
  rows.sort((one, other) => {
    // What is not known stands last, whichever way.
    if (!isText && isNaN(one.value) !== isNaN(other.value)) return isNaN(one.value) - isNaN(other.value);
    const order = isText ? one.text.localeCompare(other.text, undefined, {numeric: true}) : one.value - other.value || 0;
    return up ? order : -order;
  });
  body.append(...rows.map(({row}) => row));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
}
for (const table of document.querySelectorAll("table.sortable")) {
  if (table.tBodies[0].rows.length < 2) continue;
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.setAttribute("aria-label", `${button.textContent || "name"}: sort`);
    button.addEventListener("click", () => sort(table, column, heading));
    heading.append(button);
  });
}

// ---- Tables that scroll sideways fade where more follows ----

const fade = (box) => {
  const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
  box.classList.toggle("more-left", box.scrollLeft > 1);
  box.classList.toggle("more-right", rest > 1);
};
const boxes = new ResizeObserver((entries) => entries.forEach(({target}) => fade(target)));
for (const box of document.querySelectorAll(".wide")) {
  boxes.observe(box);
  box.addEventListener("scroll", () => fade(box), {passive: true});
}

// ---- Contents and links ----

if (matchMedia("(max-width: 1099px)").matches) document.querySelector(".contents details").open = false;
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  dispatchEvent(new Event("unfolded"));
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
})();
