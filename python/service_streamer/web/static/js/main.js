// The live page: a panel for each streamer or hub, fed once a second.

import { Connection } from "./connection.js";
import { element, setText } from "./dom.js";
import { HubPanel } from "./hub.js";
import { Panel } from "./panel.js";

const STATES = {
  connecting: "Connecting…",
  live: "Live",
  polling: "Asking every few seconds: the event stream was refused",
  lost: "Connection lost. Trying again…",
};

const panels = new Map();

function showState(state) {
  const pill = document.getElementById("connection");
  pill.dataset.state = state;
  setText(pill, STATES[state]);
  document.body.classList.toggle("stale", state === "lost");
}

function showFrame(frame) {
  for (const [name, shown] of Object.entries(frame.streamers)) {
    if (!panels.has(name)) panels.set(name, shown.kind === "ModelHub" ? new HubPanel(name, shown) : new Panel(name, shown));
    const events = frame.events.filter((event) => event.streamer === name);
    panels.get(name).update(frame.time, shown, frame.control, events);
  }
  const nav = document.querySelector("nav");
  if (panels.size > 1 && nav.children.length !== panels.size) {
    nav.hidden = false;
    nav.replaceChildren(...[...panels.keys()].map((name) => element("a", { href: `#streamer-${name}` }, name)));
  }
  const unready = Object.values(frame.streamers).some((each) => !each.ready);
  document.title = `${unready ? "(not ready) " : ""}${[...panels.keys()].filter((name) => name !== "default").join(", ") || "streamer"} · service-streamer`;
}

new Connection(showFrame, showState);
