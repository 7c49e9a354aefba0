// Bars of plain elements: batch sizes, and why batches closed.

import { element, keyed, setText } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { REASONS } from "./constants.js";

const MOST = 12; // bars

// Bins of equal width; one ends with `limit`. The first may be narrower.
export function bins(sizes, limit) {
  const top = Math.max(limit, ...sizes.keys());
  const width = Math.ceil(top / MOST);
  const found = [];
  for (let high = top; high > 0; high -= width) found.unshift({ low: Math.max(1, high - width + 1), high, n: 0 });
  for (const [size, n] of sizes) found[found.length - 1 - Math.floor((top - Math.max(1, size)) / width)].n += n;
  return found;
}

export class SizesView {
  constructor(figure) {
    this.bars = figure.querySelector(".bars");
    this.caption = figure.querySelector("figcaption");
    this.bars.setAttribute("role", "img");
  }

  update(sizes, limit) {
    const found = bins(sizes, limit);
    const total = [...sizes.values()].reduce((a, b) => a + b, 0);
    const items = [...sizes].reduce((sum, [size, n]) => sum + size * n, 0);
    const most = Math.max(1, ...found.map((bin) => bin.n));
    const make = () =>
      element("div", { class: "bar" }, element("span", { class: "share" }), element("div", { class: "fill" }), element("span", { class: "size" }));
    keyed(this.bars, found.map((bin) => `${bin.low}-${bin.high}`), make).forEach((bar, i) => {
      const { low, high, n } = found[i];
      const [share, fill, size] = bar.children;
      bar.classList.toggle("limit", low <= limit && limit <= high);
      setText(share, n / total >= 0.005 ? percent(n / total) : "");
      fill.style.height = `${(75 * n) / most}%`;
      setText(size, low === high ? String(low) : `≤${high}`);
      bar.title = `${low === high ? low : `${low}–${high}`} items: ${count(n)} batches`;
    });
    const at = `The shaded bar has batch_size ${count(limit)}.`;
    const text = total ? `${count(total)} batches of ${rate(items / total)} items on average. ${at}` : `No batch in the last 10 s. ${at}`;
    setText(this.caption, text);
    this.bars.setAttribute("aria-label", text);
  }
}

export class ReasonsView {
  constructor(figure) {
    this.rows = figure.querySelector(".rows");
    this.caption = figure.querySelector("figcaption");
  }

  update(reasons) {
    const found = Object.entries(reasons).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
    const total = found.reduce((sum, [, n]) => sum + n, 0);
    const make = () =>
      element("div", { class: "row" }, element("span"), element("span", { class: "value" }), element("div", { class: "track" }, element("div", { class: "fill" })));
    keyed(this.rows, found.map(([name]) => name), make).forEach((row, i) => {
      const [name, n] = found[i];
      setText(row.children[0], REASONS[name] ?? name);
      setText(row.children[1], percent(n / total));
      row.querySelector(".fill").style.width = `${(100 * n) / total}%`;
      row.title = `${name}: ${count(n)} batches`;
    });
    setText(this.caption, total ? `Of ${count(total)} batches.` : "No batch in the last 10 s.");
  }
}
