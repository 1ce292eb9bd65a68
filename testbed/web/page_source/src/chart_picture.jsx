// A chart as SVG, for files: what uPlot draws on the page has pixels alone.

import { scaleLinear } from "d3-scale";

import { css } from "./files.jsx";
import { digits, timeUnit } from "./units.js";

const WIDTH = 760;
const HEIGHT = 300;
const LEFT = 70;
const RIGHT = 20;
const TOP = 56;
const BOTTOM = 48;
const KEY_LINE = 24;
const LETTER = 7.5;
const FONT = "system-ui, DejaVu Sans, sans-serif";

function path(times, values, x, y, stepped) {
  let text = "";
  let isDrawn = false;
  values.forEach((value, number) => {
    if (value === null || value === undefined) {
      isDrawn = false;
      return;
    }
    const [left, top] = [x(times[number]).toFixed(2), y(value).toFixed(2)];
    if (!isDrawn) text += `M${left},${top}`;
    else text += stepped ? `H${left}V${top}` : `L${left},${top}`;
    isDrawn = true;
  });
  return text;
}

function highest(series) {
  let high = 0;
  for (const one of series) for (const value of one.values) high = Math.max(high, value ?? 0);
  return high > 0 ? high * 1.08 : 1;
}

export function ChartPicture({ title, times, series, unit }) {
  const [begin, end] = [times[0], times[times.length - 1]];
  const [timeName, timeSize] = timeUnit(end - begin);
  const x = scaleLinear([begin, end > begin ? end : begin + 1], [LEFT, WIDTH - RIGHT]);
  const y = scaleLinear([0, highest(series)], [HEIGHT - BOTTOM, TOP]);
  const xTicks = scaleLinear([x.domain()[0] / timeSize, x.domain()[1] / timeSize], x.range()).ticks(8);
  const label = { fill: css("--muted"), "font-size": 12, "font-family": FONT };
  let keyAt = LEFT;
  const keys = series.map((one) => {
    const at = keyAt;
    keyAt += KEY_LINE + 26 + one.label.length * LETTER;
    return at;
  });
  return (
    <svg width={WIDTH} height={HEIGHT} role="img" aria-label={title}>
      <text x={LEFT} y={20} fill={css("--ink")} font-size={14} font-weight={600} font-family={FONT}>{title}</text>
      {series.map((one, number) => (
        <g key={one.label}>
          <line x1={keys[number]} x2={keys[number] + KEY_LINE} y1={38} y2={38} stroke={css(one.colour)}
                stroke-width={2} stroke-dasharray={(one.dash || []).join(" ") || "none"} />
          <text {...label} x={keys[number] + KEY_LINE + 6} y={42}>{one.label}</text>
        </g>
      ))}
      {y.ticks(5).map((tick) => (
        <g key={tick}>
          <line x1={LEFT} x2={WIDTH - RIGHT} y1={y(tick)} y2={y(tick)} stroke={css("--grid")} />
          <text {...label} x={LEFT - 8} y={y(tick) + 4} text-anchor="end">{digits(tick)}</text>
        </g>
      ))}
      {xTicks.map((tick) => (
        <text {...label} key={tick} x={x(tick * timeSize)} y={HEIGHT - BOTTOM + 18} text-anchor="middle">{digits(tick)}</text>
      ))}
      <text {...label} x={(LEFT + WIDTH - RIGHT) / 2} y={HEIGHT - 10} text-anchor="middle">{`time [${timeName}]`}</text>
      <text {...label} transform={`translate(16,${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">{unit}</text>
      {series.map((one) => (
        <path key={one.label} d={path(times, one.values, x, y, one.stepped)} fill="none" stroke={css(one.colour)}
              stroke-width={1.8} stroke-dasharray={(one.dash || []).join(" ") || "none"} />
      ))}
    </svg>
  );
}
