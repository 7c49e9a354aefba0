// Changes: those that the server tells, and those that the statistics show. Numbered, newest first.

import { element, keyed } from "./dom.js";
import { clock } from "./format.js";

const MOST = 30;
const MOST_IDS = 200; // more than a server tells
const SETTINGS = ["batch_size", "max_latency", "policy", "slo", "workers"];

export class Changes {
  constructor(details) {
    this.details = details;
    this.list = details.querySelector("ol");
    this.ids = new Set();
    this.all = [];
    this.total = 0;
  }

  add(id, time, text, settings = {}) {
    if (this.ids.has(id)) return;
    this.ids.add(id);
    this.all.push({ id, time, text, settings, number: ++this.total });
    if (this.all.length > MOST) this.all.shift();
    if (this.ids.size > MOST_IDS) this.ids.delete(this.ids.values().next().value);
  }

  // The clock of the server was set back.
  move(seconds) {
    for (const each of this.all) each.time -= seconds;
  }

  // Changes by this server, told in each frame.
  tell(events) {
    for (const { id, time, text, settings } of events) {
      if (time > this.oldest) this.add(id, time, text, settings);
    }
  }

  get oldest() {
    return this.all.length < MOST ? 0 : this.all[0].time;
  }

  // What differs between two readings, unless the server has told it.
  compare(time, before, after, restarted) {
    if (restarted) this.add(after.engine_id, time, "a new streamer has taken over: the server was restarted");
    if (before === null || before.engine_id !== after.engine_id) return;
    for (const name of SETTINGS) {
      if (before[name] === after[name]) continue;
      const told = this.all.some((each) => each.settings[name] === after[name] && Math.abs(time - each.time) < 5);
      if (!told) this.add(`${name} ${time}`, time, `${name} ${before[name]} → ${after[name]}`);
    }
    const died = after.worker_restarts - before.worker_restarts;
    if (died > 0) this.add(`died ${time}`, time, `${died === 1 ? "a worker process" : `${died} worker processes`} died or hung, and is replaced`);
  }

  // What differs between two readings of the models of a hub.
  compareModels(time, before, after) {
    for (const [name, model] of Object.entries(after)) {
      const old = before[name];
      if (old === undefined) continue;
      if (model.serving !== old.serving) this.add(`${name} serves ${time}`, time, `${name}: version ${model.serving} serves now`);
      if (model.canary?.ended && !old.canary?.ended) this.add(`${name} canary ${time}`, time, `${name}: canary ${model.canary.version} has ended: ${model.canary.ended}`);
      for (const [number, version] of Object.entries(model.versions)) {
        const failures = old.versions[number]?.failures ?? 0;
        if (version.failures > failures) this.add(`${name}@${number} failed ${time}`, time, version.error ?? `${name}@${number} cannot be loaded`);
      }
    }
  }

  show() {
    this.details.hidden = this.all.length === 0;
    const shown = [...this.all].reverse();
    keyed(this.list, shown.map((each) => each.id), (id) => {
      const each = shown.find((other) => other.id === id);
      return element("li", {}, element("span", { class: "mark" }, String(each.number)), element("time", {}, clock(each.time)), element("span", {}, each.text));
    });
  }
}
