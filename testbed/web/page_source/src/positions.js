// Where nodes are drawn: switches in rows by level, servers in blocks below.

import { scaleLinear } from "d3-scale";

const MIN_CELL = 24;
const MAX_CELL = 96;
const CELL_HEIGHT = 34;
const CELL_GAP = 8;
const ROW = 64;
const TOP = 30;

export function positions(layout, width) {
  const height = layout.nodes.map((node) =>
    node.servers ? 0 : Math.max(1, node.level),
  );
  // Without a row for racks that are drawn as one with their switch.
  const heights = [...new Set([0, ...height])].sort((a, b) => a - b);
  const level = height.map((one) => heights.indexOf(one));
  const top = Math.max(...level, 0);
  const at = new Array(layout.nodes.length);
  const leafTop = TOP + top * ROW;
  const rows = placeLeaves(layout, level, width, leafTop, at);
  placeSwitches(layout, level, top, width, at);
  return {
    at,
    level,
    rows,
    width,
    height: leafTop + rows * (CELL_HEIGHT + CELL_GAP + 10) + 6,
  };
}

function placeLeaves(layout, level, width, y0, at) {
  const blocks = new Map();
  let n = 0;
  layout.nodes.forEach((node, index) => {
    if (level[index] !== 0) return;
    if (!blocks.has(node.parent)) blocks.set(node.parent, []);
    blocks.get(node.parent).push(index);
    n += 1;
  });
  const x = scaleLinear().domain([0, n]).range([0, width]);
  let before = 0;
  let rows = 0;
  for (const block of blocks.values()) {
    const left = x(before);
    const room = x(before + block.length) - left;
    const columns = Math.max(1, Math.min(block.length, Math.floor(room / MIN_CELL)));
    const cell = room / columns;
    block.forEach((index, i) => {
      const row = Math.floor(i / columns);
      at[index] = {
        x: left + ((i % columns) + 0.5) * cell,
        y: y0 + row * (CELL_HEIGHT + CELL_GAP + 10),
        width: Math.max(2, Math.min(MAX_CELL, cell - Math.min(6, cell / 5))),
        height: CELL_HEIGHT,
      };
      rows = Math.max(rows, row + 1);
    });
    before += block.length;
  }
  return rows;
}

// In each row evenly, in the order of the middles of what is below.
function placeSwitches(layout, level, top, width, at) {
  const below = layout.nodes.map(() => []);
  for (const link of layout.links) {
    if (link.lower !== link.upper) below[link.upper].push(link.lower);
  }
  for (let row = 1; row <= top; row += 1) {
    const here = [];
    level.forEach((of, index) => {
      if (of !== row) return;
      const xs = below[index].filter((node) => at[node]).map((node) => at[node].x);
      const middle = xs.length ? xs.reduce((a, b) => a + b) / xs.length : width / 2;
      here.push([middle, index]);
    });
    here.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const step = width / here.length;
    here.forEach(([, index], i) => {
      at[index] = {
        x: (i + 0.5) * step,
        y: TOP + (top - row) * ROW,
        width: Math.max(2, Math.min(MAX_CELL, step - Math.min(6, step / 5))),
        height: 16,
      };
    });
  }
}
