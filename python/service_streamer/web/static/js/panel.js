// One streamer on the page.

import { ReasonsView, SizesView } from "./bars.js";
import { Changes } from "./changes.js";
import { Control } from "./control.js";
import { element, keyed, setText, showHealth } from "./dom.js";
import { age, count, duration, percent, rate } from "./format.js";
import { History, OUTCOMES } from "./history.js";
import { Lanes, workersOf } from "./lane_data.js";
import { LanesView } from "./lanes.js";
import { LatencyPlot, QueuePlot, RequestsPlot } from "./plots.js";

const TOTALS = ["submitted", ...OUTCOMES, "isolated", "batches", "items", "worker_restarts", "broker_errors"];
const BAD = new Set(["failed", "expired", "rejected", "dropped", "worker_restarts", "broker_errors"]);
const MEANINGS = {
  expired: "ended by their time-out",
  rejected: "refused because the queue was full, or because of the slo",
  dropped: "ended because the streamer was closed",
  isolated: "answered although another request of their batch raised: that batch ran again in parts",
};
const OF_WORKERS = new Set(["batches", "items"]); // a client of Redis does not know them

export class Panel {
  constructor(name, first) {
    const section = document.getElementById("streamer").content.cloneNode(true).firstElementChild;
    section.id = `streamer-${name}`;
    section.setAttribute("aria-label", name);
    document.querySelector("main").append(section);
    this.root = section;
    this.kind = first.kind;
    this.history = new History();
    this.lanes = new Lanes();
    const part = (what) => section.querySelector(`[data-plot="${what}"]`);
    this.changes = new Changes(section.querySelector(".changes"));
    const marks = () => this.changes.all;
    this.plots = {
      requests: new RequestsPlot(part("requests"), marks),
      latency: new LatencyPlot(part("latency"), marks),
      queue: new QueuePlot(part("queue"), marks),
    };
    this.sizes = new SizesView(part("sizes"));
    this.reasons = new ReasonsView(part("reasons"));
    this.lanesView = new LanesView(part("lanes"));
    this.control = new Control(section.querySelector(".control"), name, first.kind);
    setText(section.querySelector("h2"), name);
    setText(section.querySelector(".label"), first.label);
    document.querySelector('[data-about="streamer"]').hidden = false;
    this.redis = first.kind === "RedisStreamer";
    if (this.redis) {
      for (const what of ["sizes", "reasons"]) part(what).hidden = true; // the workers form the batches
      part("lanes").querySelector("small").textContent = "at the broker: their pending requests, second by second";
    }
  }

  // Adds what the server has kept from before the page was opened.
  replay(samples, events) {
    for (const { time, stats } of samples) {
      if (!this.redis) stats.stream = null;
      this.add(time, stats, events.filter((event) => event.time <= time), true);
    }
  }

  add(time, stats, events, kept = false) {
    this.changes.move(this.history.follow(time));
    const step = this.history.add(time, stats, kept);
    this.changes.tell(events);
    if (step === null) return;
    this.changes.compare(time, step.before, stats, step.restarted);
    if (!step.same) this.lanes = new Lanes();
    this.lanes.add(workersOf(this.kind, stats), step.passed || 1);
  }

  update(time, shown, protection, events) {
    const { stats } = shown;
    this.head(shown);
    this.add(time, stats, events);
    this.changes.show();
    this.control.update(protection, stats);
    setText(this.root.querySelector(".label"), shown.label);
    this.root.querySelector(".several").hidden = !this.history.several;
    this.root.classList.toggle("stale", stats === null);
    if (stats !== null) this.body(stats);
  }

  lost(since) {
    showHealth(this.root, null, since);
  }

  head({ ready, reason, verdict }) {
    showHealth(this.root, ready, reason);
    setText(this.root.querySelector(".verdict span"), verdict || "No data.");
  }

  body(stats) {
    const ten = stats.last_10s;
    this.tiles(stats);
    this.plots.requests.show(this.history);
    this.plots.latency.show(this.history);
    this.plots.queue.show(this.history, stats.max_queue);
    if (!this.redis) {
      this.sizes.update(this.history.sizes(), stats.batch_size);
      this.reasons.update(ten.close_reasons);
    }
    const ages = this.changes.all.map((each) => this.history.last.time - each.time);
    this.lanesView.update(this.lanes.lanes, this.history.span, ages, this.redis);
    this.totals(stats);
  }

  tiles(stats) {
    const ten = stats.last_10s;
    const shares = this.lanes.lanes.map((lane) => Lanes.mean(lane).busy).filter((share) => share !== null);
    const busy = shares.length ? shares.reduce((a, b) => a + b, 0) / shares.length : null;
    const queued = this.history.queued(stats);
    const per = (n) => (ten.seconds > 0 ? n / ten.seconds : null);
    const times = (summary) => (summary.count ? [duration(summary.p50), `median; p99 ${duration(summary.p99)}`] : ["–", "no data"]);
    const ready = this.lanes.lanes.filter((lane) => lane.gone === 0 && lane.worker.state === "ready").length;
    const rows = {
      "requests/s": [rate(per(ten.completed)), `${count(stats.submitted)} so far`],
      "latency": times(ten.latency),
      "queue time": times(ten.queue_time),
      "model time": this.redis ? null : times(ten.service_time),
      "items per batch": this.redis ? null : [ten.batches ? rate(ten.items / ten.batches) : "–", `batch_size ${count(stats.batch_size)}, ${stats.policy}`],
      "queue": [count(queued), `of ${count(stats.max_queue)} items`],
      "workers busy": this.redis || this.kind === "ThreadedStreamer" ? null : [percent(busy), `${count(ready)} of ${count(stats.workers)} ready`],
      "model busy": this.kind === "ThreadedStreamer" ? [percent(busy), `${count(stats.workers)} ${stats.workers > 1 ? "threads" : "thread"}`] : null,
    };
    const names = Object.keys(rows).filter((name) => rows[name] !== null);
    const make = (name) => element("div", {}, element("dt", {}, name), element("dd"), element("dd"));
    keyed(this.root.querySelector(".tiles"), names, make).forEach((tile, i) => {
      const [value, more] = rows[names[i]];
      setText(tile.children[1], value);
      setText(tile.children[2], more);
    });
  }

  totals(stats) {
    setText(this.root.querySelector(".totals small"), `${age(stats.uptime)} ago`);
    const known = TOTALS.filter((name) => !(this.redis && OF_WORKERS.has(name)));
    const names = known.filter((name) => stats[name] || ["submitted", "completed", "failed", "batches", "items"].includes(name));
    const make = (name) => element("div", {}, element("dt", {}, name.replaceAll("_", " ")), element("dd"));
    keyed(this.root.querySelector(".totals dl"), names, make).forEach((row, i) => {
      const value = stats[names[i]];
      row.title = MEANINGS[names[i]] ?? "";
      row.lastChild.classList.toggle("bad", value > 0 && BAD.has(names[i]));
      setText(row.lastChild, count(value));
    });
  }
}
