// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

// A rate or mean: three significant digits below 100, no fraction above.
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value < 100 ? String(Number(value.toPrecision(value < 10 ? 2 : 3))) : whole.format(value);
}

export function short(value) {
  return value < 1000 ? rate(value) : compact.format(value);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [scale, unit] of [[1, "s"], [1e-3, "ms"]]) {
    if (seconds >= scale) return `${Number((seconds / scale).toPrecision(3))} ${unit}`;
  }
  return seconds === 0 ? "0 s" : `${Number((seconds * 1e6).toPrecision(3))} µs`;
}

export function age(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function percent(share) {
  if (share === null) return "–";
  return share > 0 && share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`;
}

export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString([], { hour12: false });
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [scale, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= scale) return `${Number((value / scale).toPrecision(3))} ${unit}`;
  }
  return `${value} B`;
}
