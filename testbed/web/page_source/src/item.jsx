// The history of what was chosen, and the command that shows the same.

import { useEffect, useRef } from "preact/hooks";

import { Chart } from "./chart.jsx";
import { duration, rate, rateUnit } from "./units.js";

export function Item({ item, layout, at, close, onSelect, dark }) {
  const heading = useRef();
  useEffect(() => heading.current.focus(), [item.of, item.name]);
  return (
    <aside class="item" aria-label="history">
      <div class="bar">
        <h2 tabindex={-1} ref={heading}>{item.title}</h2>
        <button onClick={close}>close</button>
      </div>
      <dl>
        {item.facts.map(([name, value]) => (
          <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
        ))}
      </dl>
      {(item.curves || []).map((curve) => <LinkCurve key={curve.name} curve={curve} at={at} dark={dark} />)}
      {item.of === "node" && <NodeLinks layout={layout} node={Number(item.name)} onSelect={onSelect} />}
      {item.lines.length > 0 && (
        <ol class="lines">
          {item.lines.map(([t, text]) => <li><span class="time">{duration(t)}</span> {text}</li>)}
        </ol>
      )}
      {item.text && (
        <details>
          <summary>tc text and flows, as installed</summary>
          <pre tabindex={0}><code>{item.text}</code></pre>
        </details>
      )}
      <p>In a terminal:</p>
      <pre tabindex={0}><code>{item.command}</code></pre>
    </aside>
  );
}

function LinkCurve({ curve, at, dark }) {
  const known = [...curve.reserved_bps, ...curve.sent_bps].filter((value) => value !== null);
  const [unit, size] = rateUnit(Math.max(...known, 0));
  const scaled = (values) => values.map((value) => (value === null ? null : value / size));
  const series = [
    { label: "reserved", values: scaled(curve.reserved_bps), colour: "--series-1", stepped: true },
  ];
  if (curve.sent_bps.some((value) => value !== null)) {
    series.push({ label: "sent", values: scaled(curve.sent_bps), colour: "--series-2", dash: [6, 3] });
  }
  if (!curve.t.length) return <p>{curve.name}: nothing reserved or sent, of {rate(curve.capacity_bps)}.</p>;
  return (
    <Chart title={`${curve.name}, capacity ${rate(curve.capacity_bps)}`} times={curve.t}
           series={series} unit={unit} at={at} dark={dark} height={150} />
  );
}

function NodeLinks({ layout, node, onSelect }) {
  const links = [];
  layout.links.forEach((link, number) => {
    if (link.lower === node || link.upper === node) links.push([link.name, number]);
  });
  if (!links.length) return null;
  return (
    <>
      <p>Its links:</p>
      <ul class="links">
        {links.map(([name, number]) => (
          <li key={number}><button onClick={() => onSelect("link", String(number))}>{name}</button></li>
        ))}
      </ul>
    </>
  );
}
