// The form that changes settings. The token is kept in its field only.

import { setText } from "./dom.js";

const FIELDS = ["batch_size", "max_latency", "policy", "slo", "resize"];

// Sends a change; returns what is to be told, and whether that is bad news.
export async function steer(name, wanted, token) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  try {
    const answer = await fetch(`control/${encodeURIComponent(name)}`, {
      method: "POST",
      headers,
      body: JSON.stringify(wanted),
      signal: AbortSignal.timeout(15000),
    });
    const said = await answer.json();
    if (!answer.ok) return [`Refused: ${said.error}`, true];
    return [`Done: ${Object.entries(said.changed).map(([what, value]) => `${what} ${value}`).join(", ")}.`, false];
  } catch (error) {
    return [`Not sent: ${error.message}`, true];
  }
}

export class Control {
  constructor(details, name, kind) {
    this.details = details;
    this.name = name;
    this.kind = kind;
    this.form = details.querySelector("form");
    this.result = details.querySelector(".result");
    this.current = {};
    for (const node of this.form.querySelectorAll(".processes")) node.hidden = kind !== "Streamer";
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.apply();
    });
    this.form.elements.restart.addEventListener("click", () => this.send({ restart: true }));
  }

  update(protection, stats) {
    const possible = protection !== null && (this.kind === "Streamer" || this.kind === "ThreadedStreamer");
    this.details.hidden = !possible;
    this.form.querySelector(".token").hidden = protection !== "token";
    if (stats === null) return;
    const now = { batch_size: stats.batch_size, max_latency: stats.max_latency, policy: stats.policy, slo: stats.slo, resize: stats.workers };
    for (const field of FIELDS) {
      const input = this.form.elements[field];
      const edited = this.current[field] !== undefined && input.value !== String(this.current[field]);
      if (!edited && document.activeElement !== input) input.value = now[field];
      else if (input.value === String(now[field])) input.value = now[field];
    }
    this.current = now;
  }

  apply() {
    const wanted = {};
    for (const field of FIELDS) {
      const { value } = this.form.elements[field];
      if (value === String(this.current[field])) continue;
      wanted[field] = field === "policy" ? value : value.trim() === "" ? null : Number(value);
    }
    if (Object.keys(wanted).length === 0) this.say("Nothing is different.", false);
    else this.send(wanted);
  }

  async send(wanted) {
    this.say("Sending…", false);
    this.say(...(await steer(this.name, wanted, this.form.elements.token.value)));
  }

  say(text, bad) {
    this.result.classList.toggle("bad", bad);
    setText(this.result, text);
  }
}
