// The last five minutes of one streamer: what the plots show, computed from counters.

export const SECONDS = 300;
const MOST = 400; // points
const GAP = 3.5; // s without data that a plot shows as a gap
const WINDOW = 10; // s of the batch sizes
const LATE = 2; // s that the clocks of two servers may differ
export const OUTCOMES = ["completed", "failed", "expired", "cancelled", "rejected", "dropped"];
export const STAGES = { latency: "latency", queue: "queue_time", model: "service_time", delivery: "delivery_time" };

export class History {
  constructor() {
    this.times = [];
    this.columns = {};
    for (const name of this.names()) this.columns[name] = [];
    this.recent = []; // counters of the last seconds
    this.last = null;
    this.engines = new Set();
    this.several = false; // processes with engines of their own answer in turn
    this.quiet = false; // nothing has happened since the last point, which the server has kept
  }

  names() {
    const latency = Object.keys(STAGES).flatMap((stage) => [`${stage}_p50`, `${stage}_p99`]);
    return [...OUTCOMES, "items", ...latency, "queued", "running"];
  }

  // Returns the seconds by which the server's clock was set back since the last point, and moves
  // all points, so that they keep their distances.
  follow(time) {
    const back = (this.times.at(-1) ?? 0) - time;
    if (back < LATE) return 0;
    const move = (each) => each - back - 1;
    this.times = this.times.map(move);
    if (this.last !== null) this.last.time = move(this.last.time);
    return back + 1;
  }

  // Adds a point; returns what has changed since the point before, or null if it is the same one.
  //
  // A point that the server has kept has no sizes. The server keeps points while something happens,
  // so there is no gap after one.
  add(time, stats, kept = false) {
    const before = this.last;
    if (stats === null) {
      this.gap(time);
      this.last = null;
      return null;
    }
    const same = before !== null && before.stats.engine_id === stats.engine_id;
    const passed = same ? stats.uptime - before.stats.uptime : 0;
    if (same && passed < 0.2) return null;
    const restarted = this.sees(stats.engine_id, same || before === null);
    if (before === null || (time - before.time > GAP && !(same && this.quiet))) this.gap(time - 0.5);
    this.quiet = kept;
    const rates = same ? (name) => Math.max(0, stats[name] - before.stats[name]) / passed : () => null;
    const point = { items: rates("items"), queued: this.queued(stats), running: stats.running_items };
    for (const name of OUTCOMES) point[name] = rates(name);
    for (const [stage, field] of Object.entries(STAGES)) {
      const summary = stats.last_10s[field];
      for (const p of ["p50", "p99"]) point[`${stage}_${p}`] = summary.count ? summary[p] : null;
    }
    this.push(time, point);
    if (!same) this.recent = [];
    if (!kept) this.recent.push({ uptime: stats.uptime, sizes: stats.batch_sizes });
    while (this.recent.length > 1 && stats.uptime - this.recent[0].uptime > WINDOW + 0.5) this.recent.shift();
    this.last = { time, stats };
    return { before: before?.stats ?? null, same, passed, restarted };
  }

  // What waits: in this process, or at the broker; null: it is not known there.
  queued(stats) {
    const { stream } = stats;
    if (stream === undefined) return null;
    return stats.queued_items + (stream ? Math.max(0, stream.length - stream.pending) : 0);
  }

  sees(engine, expected) {
    const known = this.engines.has(engine);
    this.engines.add(engine);
    if (this.engines.size > 100) this.engines = new Set([engine]);
    if (!expected && known) this.several = true;
    return !expected && !known;
  }

  gap(time) {
    const last = this.times.at(-1);
    if (last === undefined || this.columns.queued.at(-1) === null || time <= last) return;
    this.push(time, {});
  }

  push(time, point) {
    if (time <= (this.times.at(-1) ?? 0)) return; // of another server, whose clock is behind
    this.times.push(time);
    for (const name of this.names()) this.columns[name].push(point[name] ?? null);
    while (this.times.length > MOST || this.times[0] < time - SECONDS) {
      this.times.shift();
      for (const name of this.names()) this.columns[name].shift();
    }
  }

  // Batches by size in the last seconds.
  sizes() {
    const newest = this.recent.at(-1)?.sizes ?? {};
    const oldest = this.recent.length > 1 ? this.recent[0].sizes : {};
    const found = new Map();
    if (this.recent.length < 2) return found;
    for (const [size, n] of Object.entries(newest)) {
      const more = n - (oldest[size] ?? 0);
      if (more > 0) found.set(Number(size), more);
    }
    return found;
  }

  // Seconds that the plots show: more and more, up to all that is kept.
  get span() {
    const known = this.times.length ? this.times.at(-1) - this.times[0] : 0;
    return Math.min(SECONDS, Math.max(60, 30 * Math.ceil(known / 30)));
  }

  largest(...names) {
    let most = null;
    for (const name of names) {
      for (const value of this.columns[name]) if (value !== null && (most === null || value > most)) most = value;
    }
    return most;
  }

  newest(name) {
    return this.columns[name].at(-1) ?? null;
  }
}
