// Servers over time: which job had their slots, in which tier, why it left.

import { scaleLinear } from "d3-scale";
import { useRef } from "preact/hooks";

import { tenantColour } from "./colours.js";
import { Files } from "./files.jsx";
import { kept } from "./kept_part.js";
import { useWidth } from "./network.jsx";
import { digits, duration, timeUnit } from "./units.js";

// The fields of a bar, as the server sends them.
const BAR = { job: 0, first: 1, rows: 2, tier: 3, startS: 4, endS: 5, end: 6 };
const LANE = 22;
const GAP = 4;
const NAMES = 108;
const RIGHT = 14;
const AXIS = 38;
const LONGEST_NAME = 16;
const TICK_WIDTH = 70;
const MARKS = {
  preempted: ["M-4,-3 L4,-3 L0,4 Z", "preempted"],
  moved: ["M-3,-4 L4,0 L-3,4 Z", "moved away"],
  failed: ["M-3,-3 L3,3 M-3,3 L3,-3", "stopped by a failure"],
};

function shortened(name) {
  return name.length <= LONGEST_NAME ? name : `${name.slice(0, LONGEST_NAME - 1)}…`;
}

function barText(name, bar) {
  const tier = bar[BAR.tier] === "foreground" ? "" : `, ${bar[BAR.tier]}`;
  const mark = MARKS[bar[BAR.end]];
  return (
    `${bar[BAR.job]} on ${name}: ${duration(bar[BAR.startS])} to ${duration(bar[BAR.endS])}${tier}` +
    (mark ? `, ${mark[1]}` : "")
  );
}

function Bar({ bar, lane, top, x, onSelect, dark }) {
  const row = (LANE - GAP) / lane.rows;
  const left = x(bar[BAR.startS]);
  const width = Math.max(1, x(bar[BAR.endS]) - left);
  const y = top + bar[BAR.first] * row;
  const height = Math.max(1, bar[BAR.rows] * row - (lane.rows > 1 ? 1 : 0));
  const colour = tenantColour(bar[BAR.job], dark);
  const behind = bar[BAR.tier] !== "foreground";
  const mark = MARKS[bar[BAR.end]];
  return (
    <g class="use" onClick={() => onSelect("job", bar[BAR.job])}>
      <rect x={left} y={y} width={width} height={height} fill={colour} fill-opacity={behind ? 0.3 : 1}
            stroke={colour} stroke-dasharray={behind ? "3 2" : undefined}>
        <title>{barText(lane.name, bar)}</title>
      </rect>
      {mark && <path class={`mark ${bar[BAR.end]}`} d={mark[0]} transform={`translate(${left + width},${y + height / 2})`} />}
    </g>
  );
}

const Bars = kept(({ lanes, x, onSelect, dark }) => (
  <g>
    {lanes.map((lane, number) => (
      <g key={lane.name}>
        <text x={NAMES - 8} y={number * LANE + LANE / 2 + 2} text-anchor="end">{shortened(lane.name)}</text>
        {lane.bars.map((bar) => (
          <Bar bar={bar} lane={lane} top={number * LANE + GAP / 2} x={x} onSelect={onSelect} dark={dark} />
        ))}
      </g>
    ))}
  </g>
), ({ lanes, width, begin, end, dark }) => [lanes, width, begin, end, dark]);

function described(lanes) {
  const texts = lanes.map((lane) => `${lane.name}: ${new Set(lane.bars.map((bar) => bar[BAR.job])).size} jobs`);
  return `Servers over time. ${texts.join("; ")}`;
}

function rowsOf(lanes) {
  const rows = [["server", "job", "first_row", "rows", "tier", "start_s", "end_s", "end"]];
  for (const lane of lanes) for (const bar of lane.bars) rows.push([lane.name, ...bar]);
  return rows;
}

export function Lanes({ lanes, servers, begin, end, at, onSelect, dark }) {
  const box = useRef();
  const width = useWidth(box);
  const x = scaleLinear([begin, Math.max(end, begin + 1e-9)], [NAMES, Math.max(NAMES + 50, width - RIGHT)]);
  const height = lanes.length * LANE;
  const [unit, size] = timeUnit(end - begin);
  const ticks = scaleLinear([begin / size, end / size], x.range()).ticks(Math.max(2, Math.floor((width - NAMES) / TICK_WIDTH)));
  const ends = new Set(lanes.flatMap((lane) => lane.bars.map((bar) => bar[BAR.end])));
  return (
    <section>
      <div class="bar">
        <h2>Servers over time</h2>
        <Files title="servers over time" svg={() => box.current.firstChild} rows={() => rowsOf(lanes)} />
      </div>
      <div ref={box} class="drawing lanes">
        {width > 0 && (
          <svg width={width} height={height + AXIS} role="img" aria-label={described(lanes)}>
            {ticks.map((tick) => <line class="tick" x1={x(tick * size)} x2={x(tick * size)} y1={0} y2={height} />)}
            <Bars lanes={lanes} width={width} begin={begin} end={end} x={x} onSelect={onSelect} dark={dark} />
            {ticks.map((tick) => <text x={x(tick * size)} y={height + 14} text-anchor="middle">{digits(tick)}</text>)}
            <text x={(NAMES + width - RIGHT) / 2} y={height + 30} text-anchor="middle">{`time [${unit}]`}</text>
            <line class="now" x1={x(at)} x2={x(at)} y1={0} y2={height} />
          </svg>
        )}
      </div>
      <p class="sub">
        {servers > lanes.length ? `The ${lanes.length} busiest of ${servers} servers. ` : ""}
        Pale, with a broken line: in the background tier.
        {Object.keys(MARKS).filter((kind) => ends.has(kind)).map((kind) => (
          <span class="key"> <svg width="12" height="12" aria-hidden="true"><path class={`mark ${kind}`} d={MARKS[kind][0]} transform="translate(6,6)" /></svg> {MARKS[kind][1]}</span>
        ))}
      </p>
    </section>
  );
}
