// The plots over time, drawn by uPlot.

import { clock, duration, rate, short } from "./format.js";
import { OUTCOMES, STAGES } from "./history.js";
import { onThemeChange, palette } from "./theme.js";

const HEIGHT = 180;
const FONT = "11px system-ui, sans-serif";

// Dashed lines with numbers at the changes, as in the list of changes.
function marks(changes) {
  return {
    hooks: {
      draw: ({ ctx, bbox, scales, valToPos }) => {
        const ratio = devicePixelRatio || 1;
        const size = 14 * ratio;
        ctx.save();
        ctx.font = `600 ${10 * ratio}px system-ui, sans-serif`;
        ctx.textAlign = "center";
        ctx.textBaseline = "middle";
        ctx.lineWidth = ratio;
        ctx.setLineDash([3 * ratio, 3 * ratio]);
        for (const { time, number } of changes()) {
          if (time < scales.x.min || time > scales.x.max) continue;
          const x = Math.round(valToPos(time, "x", true)) + 0.5;
          ctx.strokeStyle = ctx.fillStyle = palette().warn;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          ctx.fillRect(x - size / 2, bbox.top - size, size, size);
          ctx.fillStyle = palette().card;
          ctx.fillText(number, x, bbox.top - size / 2);
        }
        ctx.restore();
      },
    },
  };
}

function line(name, colour, options = {}) {
  return {
    label: name,
    stroke: () => palette()[colour],
    width: 1.5,
    points: { show: false },
    spanGaps: false,
    ...options,
  };
}

function filled(name, colour, options = {}) {
  return line(name, colour, { fill: () => `${palette()[colour]}26`, ...options });
}


const all = (_, splits) => splits;

class TimePlot {
  constructor(figure, names, series, y, changes) {
    this.box = figure.querySelector(".plot");
    this.caption = figure.querySelector("figcaption");
    this.names = names;
    this.span = 60;
    this.shown = [];
    const axis = { stroke: () => palette().muted, font: FONT, grid: { stroke: () => palette().line, width: 1 }, ticks: { show: false } };
    this.plot = new uPlot(
      {
        width: 300,
        height: HEIGHT,
        padding: [16, 22, 0, 0],
        cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 6 } },
        legend: { live: true, markers: { dash: (plot, i) => (plot.series[i].dash ? "dashed" : "solid") } },
        scales: { x: { time: true, range: (_, min, max) => [max - this.span, max] }, y: y.scale },
        axes: [
          { ...axis, size: 24, space: 80, values: (_, splits) => splits.map(clock) },
          { ...axis, size: 54, values: y.values, filter: y.filter ?? all, grid: { ...axis.grid, filter: y.filter ?? all } },
        ],
        series: [{ value: (_, at) => (at === null ? "" : clock(at)) }, ...series],
        plugins: [marks(changes)],
      },
      [[], ...names.map(() => [])],
      this.box,
    );
    new ResizeObserver(() => this.resize()).observe(this.box);
    onThemeChange(() => this.plot.redraw());
  }

  resize() {
    const width = this.box.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  update(history, hidden = () => false) {
    this.names.forEach((name, i) => {
      const show = !hidden(name);
      if ((this.shown[i] ?? true) !== show) {
        this.shown[i] = show; // a click on the legend may have hidden it, too
        this.plot.setSeries(i + 1, { show }, false);
        this.plot.root.querySelectorAll(".u-series")[i + 1].hidden = !show;
      }
    });
    this.span = history.span;
    this.plot.setData([history.times, ...this.names.map((name) => history.columns[name])]);
    if (this.plot.cursor.idx === null || this.plot.cursor.left < 0) this.plot.setLegend({ idx: history.times.length - 1 });
  }

  describe(text) {
    if (this.caption.textContent === text) return;
    this.caption.textContent = text;
    this.plot.root.querySelector("canvas").setAttribute("aria-label", text);
    this.plot.root.querySelector("canvas").setAttribute("role", "img");
  }
}

const fromZero = { scale: { range: (_, min, max) => [0, Math.max(1, (max ?? 1) * 1.05)] }, values: (_, splits) => splits.map(short) };

export class RequestsPlot extends TimePlot {
  constructor(figure, changes) {
    const value = (_, y) => (y === null ? "–" : rate(y));
    const series = OUTCOMES.map((name, i) => (i === 0 ? filled : line)(name, name, { value }));
    super(figure, OUTCOMES, series, fromZero, changes);
  }

  show(history) {
    this.update(history, (name) => name !== "completed" && !history.largest(name));
    const now = history.newest("completed");
    const others = OUTCOMES.slice(1).filter((name) => history.largest(name));
    const rest = others.length ? `; ${others.map((name) => `${name} at most ${rate(history.largest(name))}/s`).join(", ")}` : "; no other outcome";
    this.describe(now === null ? "No data yet." : `Now ${rate(now)} completed per second, at most ${rate(history.largest("completed"))}${rest}.`);
  }
}

const log = {
  scale: { distr: 3, log: 10, range: (_, min, max) => (min === null ? [1e-4, 1] : [10 ** Math.floor(Math.log10(min)), 10 ** Math.ceil(Math.log10(max * 1.01))]) },
  values: (_, splits) => splits.map((each) => (each === null ? "" : duration(Number(each.toPrecision(1))))),
  filter: (_, splits) => splits.map((each) => (Math.abs(Math.log10(each) - Math.round(Math.log10(each))) < 1e-6 ? each : null)),
};

export class LatencyPlot extends TimePlot {
  constructor(figure, changes) {
    const value = (_, y) => (y === null ? "–" : duration(y));
    const stages = Object.keys(STAGES);
    const names = ["p50", "p99"].flatMap((p) => stages.map((stage) => `${stage}_${p}`));
    const series = names.map((name) => {
      const [stage, p] = name.split("_");
      const width = (stage === "latency" ? 1 : 0) + (p === "p99" ? 1 : 1.5);
      return line(`${stage} ${p === "p50" ? "median" : p}`, stage, { value, dash: p === "p99" ? [5, 4] : undefined, width });
    });
    super(figure, names, series, log, changes);
  }

  show(history) {
    this.update(history);
    const parts = Object.keys(STAGES).map((stage) => {
      const [p50, p99] = ["p50", "p99"].map((p) => history.newest(`${stage}_${p}`));
      return p50 === null ? null : `${stage} ${duration(p50)} (p99 ${duration(p99)})`;
    });
    const known = parts.filter((part) => part !== null);
    this.describe(known.length ? `Medians now: ${known.join(", ")}.` : "No request in the last 10 s.");
  }
}

export class QueuePlot extends TimePlot {
  constructor(figure, changes) {
    const value = (_, y) => (y === null ? "–" : rate(y));
    const series = [filled("waiting", "queue", { value }), line("at workers", "running", { value })];
    super(figure, ["queued", "running"], series, fromZero, changes);
  }

  show(history, most) {
    this.update(history);
    const now = history.newest("queued");
    this.describe(now === null ? "No data yet." : `Now ${rate(now)} wait of at most ${most.toLocaleString("en")} (max_queue); ${rate(history.newest("running"))} at workers, in batches that run or are on their way. Longest queue: ${rate(history.largest("queued"))}.`);
  }
}
