// Quantities over time, by uPlot.

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import { ChartPicture } from "./chart_picture.jsx";
import { Files, css } from "./files.jsx";
import { useWidth } from "./network.jsx";
import { digits, timeSteps, timeUnit } from "./units.js";

// series: [{label, values, colour: a CSS variable, dash, stepped}]
export function Chart({ title, times, series, unit, at, dark, height = 170 }) {
  const box = useRef();
  const plot = useRef();
  const paper = useRef();
  const moment = useRef(at);
  const width = useWidth(box);
  moment.current = at;
  const span = times.length ? times[times.length - 1] - times[0] : 0;
  const [timeName, timeSize] = timeUnit(span);
  const shape = series.map((one) => one.label).join();
  const data = [times, ...series.map((one) => one.values)];
  // Drawn when it is asked for, and styled by where it lies.
  const picture = () => {
    const drawn = <ChartPicture title={title} times={times} series={series} unit={unit} />;
    render(drawn, paper.current);
    return paper.current.firstChild;
  };
  const rows = () => [
    ["time_s", ...series.map((one) => `${one.label}, ${unit}`)],
    ...times.map((time, number) => [time, ...series.map((one) => one.values[number])]),
  ];
  useEffect(() => {
    if (!width) return undefined;
    const axis = {
      stroke: css("--muted"),
      grid: { stroke: css("--grid") },
      ticks: { stroke: css("--grid") },
      font: "11px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      labelSize: 20,
    };
    const options = {
      width,
      height,
      legend: { live: false },
      cursor: { y: false },
      scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, label: `time [${timeName}]`, size: 30, incrs: timeSteps(timeSize),
          values: (_, ticks) => ticks.map((tick) => digits(tick / timeSize)) },
        { ...axis, label: unit, size: 46,
          values: (_, ticks) => ticks.map((tick) => digits(tick)) },
      ],
      series: [
        {},
        ...series.map((one) => ({
          label: one.label,
          stroke: css(one.colour),
          width: 1.5,
          dash: one.dash,
          points: { show: false },
          paths: one.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        })),
      ],
      hooks: { draw: [(drawn) => placeMoment(drawn, line, moment.current)] },
    };
    const line = document.createElement("div");
    line.className = "moment";
    plot.current = new uPlot(options, data, box.current);
    plot.current.over.appendChild(line);
    return () => plot.current.destroy();
  }, [width, shape, unit, timeName, dark]);
  useEffect(() => {
    if (plot.current) plot.current.setData(data);
  }, [times, at, ...series.map((one) => one.values)]);
  return (
    <figure>
      <div class="bar">
        <figcaption>{title}</figcaption>
        <Files title={title} svg={picture} rows={rows} />
      </div>
      <div ref={box} class="chart" />
      <div ref={paper} hidden />
    </figure>
  );
}

// The moment that the page shows, as a line over the plot.
function placeMoment(plot, line, at) {
  const [low, high] = [plot.scales.x.min, plot.scales.x.max];
  const inside = at !== null && at !== undefined && at >= low && at <= high;
  line.hidden = !inside;
  if (inside) line.style.left = `${plot.valToPos(at, "x")}px`;
}
