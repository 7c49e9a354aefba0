// How busy each worker was in each second, from its counters.

import { SILENT_AFTER } from "./constants.js";
import { SECONDS } from "./history.js";

const KEEP = 10; // s that the lane of a worker that has ended stays, if no other worker takes it

class Lane {
  constructor() {
    this.cells = []; // per second: share of it that the worker was busy; null: not there
    this.items = [];
    this.counters = null;
    this.gone = 0; // s since the worker has ended
  }

  push(busy, items) {
    this.cells.push(busy);
    this.items.push(items);
    if (this.cells.length > SECONDS) {
      this.cells.shift();
      this.items.shift();
    }
  }

  // A batch is counted when it ends, so seconds of work may arrive at once: the earlier ones belong
  // to the cells before.
  work(seconds, passed) {
    for (let i = this.cells.length - 1; i >= 0 && seconds > 0 && this.cells[i] !== null; i--) {
      const room = Math.min(seconds / passed, 1 - this.cells[i]);
      this.cells[i] += room;
      seconds -= room * passed;
    }
  }
}

export class Lanes {
  constructor() {
    this.lanes = [];
    this.width = 0; // cells of the longest lane
  }

  // Args: the workers, {key, name, extra, state, busy: seconds so far, items so far}; seconds since
  // the last call.
  add(workers, passed) {
    const present = new Map(workers.map((each) => [each.key, each]));
    const cells = Math.max(1, Math.round(passed));
    this.width = Math.min(SECONDS, this.width + cells);
    for (const lane of this.lanes) {
      const worker = present.get(lane.key);
      present.delete(lane.key);
      this.advance(lane, worker, cells, passed);
    }
    for (const worker of present.values()) {
      let lane = this.lanes.find((each) => each.gone > 0);
      if (lane === undefined) {
        lane = new Lane();
        for (let i = 0; i < this.width; i++) lane.push(null, null);
        this.lanes.push(lane);
      }
      Object.assign(lane, { worker, key: worker.key, counters: worker, gone: 0 });
      if (worker.level !== undefined) this.mark(lane, worker, 1);
    }
    this.lanes = this.lanes.filter((lane) => lane.gone <= KEEP);
  }

  advance(lane, worker, cells, passed) {
    if (worker === undefined) {
      lane.gone += passed;
      for (let i = 0; i < cells; i++) lane.push(null, null);
      return;
    }
    const before = lane.counters;
    lane.worker = lane.counters = worker;
    for (let i = 0; i < cells; i++) lane.push(0, 0);
    if (worker.level !== undefined) {
      this.mark(lane, worker, cells);
      return;
    }
    const items = Math.max(0, worker.items - before.items);
    for (let i = 1; i <= cells; i++) lane.items[lane.items.length - i] = items / cells;
    lane.work(Math.max(0, worker.busy - before.busy), passed / cells);
  }

  // A worker of which only the present load is known: a consumer at the broker.
  mark(lane, worker, cells) {
    for (let i = 1; i <= Math.min(cells, lane.cells.length); i++) {
      lane.cells[lane.cells.length - i] = worker.level;
      lane.items[lane.items.length - i] = worker.items;
    }
  }

  // Mean of the last seconds: share of the time, and items per second.
  static mean(lane, seconds = 10) {
    const known = lane.cells.slice(-seconds).filter((each) => each !== null);
    const items = lane.items.slice(-seconds).filter((each) => each !== null);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    if (known.length === 0) return { busy: null, items: null };
    return { busy: sum(known) / known.length, items: sum(items) / items.length };
  }
}

// The workers of a streamer of any kind.
export function workersOf(kind, stats) {
  if (kind === "RedisStreamer") return (stats.stream?.consumers ?? []).map(consumer);
  if (kind === "ThreadedStreamer") {
    const busy = stats.busy_time / stats.workers;
    const name = stats.workers > 1 ? `${stats.workers} threads` : "worker thread";
    return [{ key: "threads", name, extra: "", state: "ready", busy, items: stats.items }];
  }
  return stats.worker_processes.map((each) => ({
    key: each.pid,
    name: `pid ${each.pid}`,
    extra: each.device ? `GPU ${each.device}` : "",
    state: each.state,
    busy: each.busy_time,
    items: each.items,
  }));
}

function consumer(each, _, all) {
  const most = Math.max(1, ...all.map((other) => other.pending));
  return {
    key: each.name,
    name: each.name,
    extra: "",
    state: each.idle < SILENT_AFTER ? "ready" : `silent for ${Math.round(each.idle)} s`,
    level: each.pending / most,
    items: each.pending,
  };
}
