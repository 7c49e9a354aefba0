// The live page: a panel for each streamer or hub, fed once a second.

import { Connection } from "./connection.js";
import { element, setText } from "./dom.js";
import { clock } from "./format.js";
import { HubPanel } from "./hub.js";
import { Panel } from "./panel.js";

const STATES = {
  connecting: "Connecting…",
  live: "Live",
  polling: "Asking every few seconds: the event stream was refused",
  lost: "Connection lost. Trying again…",
};

const panels = new Map();

function showState(state, heard) {
  const pill = document.getElementById("connection");
  pill.dataset.state = state;
  setText(pill, STATES[state]);
  document.body.classList.toggle("stale", state === "lost");
  if (state !== "lost" || panels.size === 0) return;
  for (const panel of panels.values()) panel.lost(clock(heard / 1000));
  showTitle("(no answer) ");
}

function showTitle(state) {
  const names = [...panels.keys()].filter((name) => name !== "default");
  document.title = `${state}${names.join(", ") || "streamer"} · service-streamer`;
}

// What the server has kept: samples by the name of the streamer. A page without them begins empty.
async function kept() {
  try {
    const answer = await fetch("history", { signal: AbortSignal.timeout(3000), cache: "no-store" });
    return answer.ok ? await answer.json() : {};
  } catch {
    return {};
  }
}

function showFrame(frame) {
  for (const [name, shown] of Object.entries(frame.streamers)) {
    const events = frame.events.filter((event) => event.streamer === name);
    if (!panels.has(name)) {
      panels.set(name, shown.kind === "ModelHub" ? new HubPanel(name, shown) : new Panel(name, shown));
      panels.get(name).replay(samples[name] ?? [], events);
    }
    panels.get(name).update(frame.time, shown, frame.control, events);
  }
  const nav = document.querySelector("nav");
  if (panels.size > 1 && nav.children.length !== panels.size) {
    nav.hidden = false;
    nav.replaceChildren(...[...panels.keys()].map((name) => element("a", { href: `#streamer-${name}` }, name)));
  }
  const unready = Object.values(frame.streamers).some((each) => !each.ready);
  showTitle(unready ? "(not ready) " : "");
}

const samples = await kept();
new Connection(showFrame, showState);
