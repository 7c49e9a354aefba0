// A hub on the page: a row for each version of each model.

import { Changes } from "./changes.js";
import { steer } from "./control.js";
import { element, keyed, setText, showHealth } from "./dom.js";
import { age, bytes, count, duration, percent, rate } from "./format.js";

const COLUMNS = 12;
const NUMBERS = ["Requests/s", "Latency", "Requests", "Failed", "Waiting", "Memory", "GPU", "Last use"];

export class HubPanel {
  constructor(name, first) {
    const section = document.getElementById("hub").content.cloneNode(true).firstElementChild;
    section.id = `streamer-${name}`;
    section.setAttribute("aria-label", name);
    document.querySelector("main").append(section);
    this.root = section;
    this.name = name;
    this.changes = new Changes(section.querySelector(".changes"));
    this.models = null;
    this.time = 0;
    this.rates = new Map(); // requests per second by row
    document.querySelector('[data-about="hub"]').hidden = false;
    this.form = section.querySelector("form");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.beginCanary();
    });
    setText(section.querySelector("h2"), name);
    setText(section.querySelector(".label"), first.label);
  }

  replay() {} // a hub has no plots

  lost(since) {
    showHealth(this.root, null, since);
  }

  update(time, shown, protection, events) {
    const { models, ready, reason, verdict } = shown;
    showHealth(this.root, ready, reason);
    setText(this.root.querySelector(".verdict span"), verdict || "No data.");
    this.root.classList.toggle("stale", models === null);
    for (const node of this.root.querySelectorAll(".steering")) node.hidden = protection === null;
    this.form.querySelector(".token").hidden = protection !== "token";
    this.changes.tell(events);
    if (models !== null && time !== this.time) {
      if (this.models !== null) {
        this.changes.compareModels(time, this.models, models);
        this.measure(models, time - this.time);
      }
      this.models = models;
      this.time = time;
      this.tiles(rowsOf(models));
      this.rows(rowsOf(models), protection !== null);
      this.canaries(models);
    }
    this.changes.show();
  }

  measure(models, passed) {
    const before = new Map(rowsOf(this.models).map((row) => [row.key, row.version.requests]));
    this.rates = new Map(
      rowsOf(models).map(({ key, version }) => [key, passed > 0 ? Math.max(0, version.requests - (before.get(key) ?? 0)) / passed : 0]),
    );
  }

  tiles(rows) {
    const sum = (value) => rows.reduce((total, row) => total + (value(row) ?? 0), 0);
    const loaded = sum(({ version }) => version.state === "ready");
    const gpu = sum(({ version }) => version.gpu_memory);
    this.root.classList.toggle("no-gpu", !gpu);
    const requests = sum(({ version }) => version.requests);
    const failed = sum(({ version }) => version.failed);
    const known = rows.map(({ version }) => version.latency).filter((each) => each !== null);
    const slowest = known.length ? known.reduce((a, b) => (a.p50 > b.p50 ? a : b)) : null;
    const tiles = {
      "requests/s": [rate(sum(({ key }) => this.rates.get(key))), `${count(requests)} so far`],
      "latency": [slowest === null ? "–" : duration(slowest.p50), slowest === null ? "no data" : `median; p99 ${duration(slowest.p99)}; of the slowest model`],
      "failed": [count(failed), `of ${count(requests)} requests`],
      "loaded": [count(loaded), `of ${count(rows.length)} versions`],
      "memory": [bytes(sum(({ version }) => version.memory)), gpu ? `and ${bytes(gpu)} of GPUs` : "of loaded models"],
      "waiting": [count(sum(({ version }) => version.waiting)), "requests for a load"],
      "broken": [count(sum(({ version }) => version.state === "failed")), "versions cannot be loaded"],
    };
    const names = Object.keys(tiles);
    const make = (name) => element("div", {}, element("dt", {}, name), element("dd"), element("dd"));
    keyed(this.root.querySelector(".tiles"), names, make).forEach((tile, i) => {
      setText(tile.children[1], tiles[names[i]][0]);
      setText(tile.children[2], tiles[names[i]][1]);
    });
  }

  rows(rows, steering) {
    const keys = rows.flatMap((row) => (errorOf(row) ? [row.key, `${row.key} error`] : [row.key]));
    const lines = keyed(this.root.querySelector("tbody"), keys, (key) => (key.endsWith(" error") ? errorLine() : line()));
    const byKey = new Map(lines.map((each, i) => [keys[i], each]));
    for (const row of rows) {
      this.row(byKey.get(row.key), row, steering);
      const error = byKey.get(`${row.key} error`);
      if (error !== undefined) setText(error.firstChild, errorOf(row));
    }
  }

  row(line, row, steering) {
    const { key, name, model, number, version, serving, first } = row;
    line.classList.toggle("serving", serving);
    line.classList.toggle("first", first);
    setLabels(line.children[0], first ? name : "", first && model.pinned ? ["pinned"] : []);
    setLabels(line.children[1], number === null ? "–" : String(number), tagsOf(model, number, serving));
    const pill = line.querySelector(".pill");
    pill.dataset.state = version.state;
    setText(pill, version.state);
    const used = version.last_use === null ? "never" : `${age(Math.max(0, this.time - version.last_use))} ago`;
    const { latency, failed, requests } = version;
    const took = latency === null ? "–" : `${duration(latency.p50)}, p99 ${duration(latency.p99)}`;
    const failures = failed ? `${count(failed)} (${percent(failed / requests)})` : "0";
    const numbers = [rate(this.rates.get(key) ?? 0), took, count(requests), failures, count(version.waiting), bytes(version.memory), bytes(version.gpu_memory || null), used];
    numbers.forEach((text, i) => setText(line.children[3 + i], text));
    line.children[4].title = latency === null ? "" : "median and p99 of the last 10 s, without the wait for a load";
    line.children[6].classList.toggle("bad", failed > 0);
    const actions = steering ? actionsOf(row) : [];
    const button = (text) => element("button", { type: "button", onclick: (event) => this.send(event.target) }, text);
    keyed(line.lastChild, actions.map((each) => each.text), button).forEach((made, i) => {
      Object.assign(made.dataset, { change: actions[i].change, model: actions[i].model });
      made.setAttribute("aria-label", `${actions[i].text}: ${actions[i].model}`);
    });
    line.lastChild.hidden = !steering;
  }

  // The versions that may be canaries: all in the folders that do not serve.
  canaries(models) {
    const names = Object.values(models).flatMap((model) =>
      model.available.filter((number) => number !== model.serving && !isCanary(model, number)).map((number) => `${model.name}@${number}`),
    );
    for (const node of this.form.querySelectorAll(".canary")) node.hidden = names.length === 0;
    keyed(this.form.elements.version, names, (name) => element("option", { value: name }, name));
  }

  beginCanary() {
    const { version, share } = this.form.elements;
    const [model, number] = version.value.split("@");
    this.steer({ canary: { model, version: Number(number), share: Number(share.value) / 100 } });
  }

  send({ dataset }) {
    this.steer({ [dataset.change]: dataset.model });
  }

  async steer(wanted) {
    this.say("Sending…", false);
    this.say(...(await steer(this.name, wanted, this.form.elements.token.value)));
  }

  say(text, bad) {
    const result = this.root.querySelector(".result");
    result.classList.toggle("bad", bad);
    setText(result, text);
  }
}

const NONE = { state: "failed", requests: 0, failed: 0, latency: null, waiting: 0, memory: null, gpu_memory: null, last_use: null, failures: 0, error: null };

function line() {
  const numbers = NUMBERS.map((name) => element("td", { "data-label": name }));
  const state = element("td", {}, element("span", { class: "pill" }));
  return element("tr", {}, element("th", { scope: "row" }), element("td"), state, ...numbers, element("td", { class: "steering" }));
}

function errorLine() {
  return element("tr", { class: "error" }, element("td", { colSpan: COLUMNS }));
}

function errorOf({ version, model, first }) {
  return version.error ?? (first ? model.error : null);
}

// The newest version of a model comes first. A model without a version has a row, too.
function rowsOf(models) {
  return Object.entries(models).flatMap(([name, model]) => {
    const versions = Object.values(model.versions).reverse();
    if (versions.length === 0) return [{ key: name, name, model, number: null, version: NONE, serving: false, first: true }];
    return versions.map((version, i) => ({
      key: `${name}@${version.version}`,
      name,
      model,
      number: version.version,
      version,
      serving: version.version === model.serving,
      first: i === 0,
    }));
  });
}

function tagsOf(model, number, serving) {
  const tags = Object.keys(model.labels).filter((label) => model.labels[label] === number);
  if (serving && Object.keys(model.versions).length > 1) tags.unshift("serves");
  if (serving && model.degraded !== null) tags.push("degraded");
  if (isCanary(model, number)) tags.push(`canary ${Math.round(100 * model.canary.share)} %`);
  return tags;
}

function hasCanary(model) {
  return model.canary !== null && model.canary.ended === null;
}

function isCanary(model, number) {
  return hasCanary(model) && model.canary.version === number;
}

function actionsOf({ key, name, model, number, version, serving, first }) {
  if (number === null) return [];
  const actions = [];
  if (version.state === "ready") actions.push({ text: "Unload", change: "unload", model: key });
  if (version.state === "unloaded" || version.state === "failed") actions.push({ text: "Load", change: "load", model: key });
  if (first) actions.push(model.pinned ? { text: "Unpin", change: "unpin", model: name } : { text: "Pin", change: "pin", model: name });
  if (isCanary(model, number)) actions.push({ text: "Promote", change: "promote", model: name }, { text: "End", change: "end", model: name });
  else if (serving && model.earlier !== null && !hasCanary(model)) actions.push({ text: `Back to ${model.earlier}`, change: "rollback", model: name });
  return actions;
}

function setLabels(cell, text, tags) {
  const shown = [text, ...tags].join("\n");
  if (cell.dataset.shown === shown) return;
  cell.dataset.shown = shown;
  cell.replaceChildren(text, ...tags.map((tag) => element("span", { class: "tag" }, tag)));
}
