// Draws the lanes: a row for each worker, a bar for each second.

import { element, keyed, setText } from "./dom.js";
import { age, count, percent, rate } from "./format.js";
import { Lanes } from "./lane_data.js";
import { palette } from "./theme.js";

export class LanesView {
  constructor(figure) {
    this.root = figure.querySelector(".lanes");
    this.caption = figure.querySelector("figcaption");
    this.canvas = element("canvas", { role: "img" });
    this.names = element("div", { class: "names" });
    this.nows = element("div", { class: "nows" });
    this.start = element("span");
    this.root.append(this.names, this.canvas, this.nows, element("div", { class: "axis" }, this.start, element("span", {}, "now")));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // Args: the lanes; seconds that are shown; ages of the changes in seconds; the lanes are consumers.
  update(lanes, span, changes, consumers) {
    this.lanes = lanes;
    this.changes = changes;
    this.span = span;
    setText(this.start, `${age(span)} ago`);
    this.consumers = consumers;
    const n = lanes.length;
    this.height = n <= 8 ? 26 : n <= 24 ? 18 : 14;
    this.root.style.setProperty("--lane", `${this.height}px`);
    this.root.classList.toggle("many", n > 24);
    const keys = lanes.map((lane, i) => i);
    const label = () => element("div", { class: "name" }, element("span"), element("span", { class: "extra" }));
    keyed(this.names, keys, label).forEach((row, i) => this.name(row, lanes[i]));
    keyed(this.nows, keys, () => element("div", { class: "now" }, element("span"), element("span", { class: "extra" }))).forEach((row, i) => this.now(row, lanes[i]));
    this.summarise();
    this.draw();
  }

  name(row, lane) {
    const { name, extra, state } = lane.worker;
    row.classList.toggle("gone", lane.gone > 0);
    setText(row.firstChild, name.length > 26 ? `${name.slice(0, 25)}…` : name);
    setText(row.lastChild, extra ? ` · ${extra}` : "");
    row.title = `${name} ${extra} ${state}`;
  }

  now(row, lane) {
    const { busy, items } = Lanes.mean(lane);
    const serving = lane.gone === 0 && lane.worker.state === "ready";
    const first = this.consumers ? `${count(lane.worker.items)} pending` : percent(busy);
    setText(row.firstChild, lane.gone > 0 ? "ended" : serving ? first : lane.worker.state);
    setText(row.lastChild, serving && !this.consumers ? `· ${rate(items)} items/s` : "");
  }

  summarise() {
    const live = this.lanes.filter((lane) => lane.gone === 0 && lane.worker.state === "ready");
    if (this.lanes.length === 0) {
      setText(this.caption, this.consumers ? "No worker has joined the queue." : "No worker is running.");
    } else if (this.consumers) {
      setText(this.caption, `${live.length} of ${this.lanes.length} workers at the broker are alive. The higher a bar, the more requests are pending.`);
    } else {
      const shares = live.map((lane) => Lanes.mean(lane).busy ?? 0);
      const mean = shares.reduce((a, b) => a + b, 0) / Math.max(1, shares.length);
      const range = shares.length > 1 ? `, from ${percent(Math.min(...shares))} to ${percent(Math.max(...shares))}` : "";
      setText(this.caption, `${live.length} of ${this.lanes.length} ready; busy for ${percent(mean)} of the last 10 s${range}. The higher a bar, the busier that second.`);
    }
    this.canvas.setAttribute("aria-label", this.caption.textContent);
  }

  draw() {
    if (!this.lanes) return;
    const ratio = devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = this.height * this.lanes.length;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const colours = palette();
    const step = width / this.span;
    const inset = this.height > 16 ? 3 : 1.5;
    this.lanes.forEach((lane, row) => {
      const top = row * this.height + inset;
      const tall = this.height - 2 * inset;
      lane.cells.forEach((busy, i) => {
        if (busy === null || lane.cells.length - i > this.span) return;
        const x = width - (lane.cells.length - i) * step;
        context.fillStyle = colours.track;
        context.fillRect(x, top, step + 0.5, tall);
        const filled = tall * Math.min(1, busy);
        context.fillStyle = colours.accent;
        context.fillRect(x, top + tall - filled, step + (step > 4 ? -0.5 : 0.5), filled);
      });
    });
    context.fillStyle = colours.warn;
    for (const ago of this.changes) if (ago < this.span) context.fillRect(width - ago * step, 0, 1, height);
  }
}
