// The colours of the style sheet, for canvases; they follow the light or dark scheme.

const NAMES = [
  "text", "muted", "line", "track", "accent", "warn", "bad", "card",
  "completed", "failed", "expired", "cancelled", "rejected", "dropped",
  "latency", "queue", "model", "delivery", "running",
];
const listeners = new Set();
let colours = null;

export function palette() {
  if (colours === null) {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return colours;
}

export function onThemeChange(listener) {
  listeners.add(listener);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours = null;
  for (const listener of listeners) listener();
});
