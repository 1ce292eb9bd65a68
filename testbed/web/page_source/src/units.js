// Quantities as people read them.

export function rate(bps) {
  if (bps === null || bps === undefined) return "–";
  const steps = [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]];
  for (const [unit, size] of steps) {
    if (bps >= size) return `${digits(bps / size)} ${unit}`;
  }
  return `${digits(bps)} bit/s`;
}

export function digits(value) {
  return Number(value.toPrecision(3)).toLocaleString("en");
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  return `${digits(share * 100)} %`;
}

const HOUR_S = 3600;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 120) return `${s.toFixed(1)} s`;
  if (s < 2 * HOUR_S) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / HOUR_S)} h ${Math.floor((s % HOUR_S) / 60)} min`;
}

// The unit of a time axis that is so long: its name and its seconds.
export function timeUnit(spanS) {
  if (spanS > 3 * HOUR_S) return ["h", HOUR_S];
  if (spanS > 300) return ["min", 60];
  return ["s", 1];
}

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

// Distances of ticks that are round in their unit.
export function timeSteps(size) {
  return STEPS.map((step) => step * size);
}

export function rateUnit(largestBps) {
  if (largestBps >= 1e9) return ["Gbit/s", 1e9];
  if (largestBps >= 1e6) return ["Mbit/s", 1e6];
  return ["kbit/s", 1e3];
}

export function count(n, one, many) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}
