// Colours of tenants and of links' use.

const GOLDEN_ANGLE = 137.508;
const numbers = new Map();

// A tenant keeps its colour for as long as the page is open.
export function tenantColour(name, dark) {
  if (!numbers.has(name)) numbers.set(name, numbers.size);
  const hue = (200 + numbers.get(name) * GOLDEN_ANGLE) % 360;
  return `hsl(${hue.toFixed(0)} 60% ${dark ? 65 : 45}%)`;
}

export const STEPS = [
  ["idle", "unused"],
  ["low", "to 50 %"],
  ["half", "to 80 %"],
  ["high", "to 95 %"],
  ["full", "above 95 %"],
];

export function step(use) {
  if (use <= 0) return 0;
  if (use <= 0.5) return 1;
  if (use <= 0.8) return 2;
  if (use <= 0.95) return 3;
  return 4;
}
