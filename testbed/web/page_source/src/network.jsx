// The data centre as SVG: links by use, VMs in their slots.

import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { Files } from "./files.jsx";
import { STEPS, step, tenantColour } from "./colours.js";
import { kept } from "./kept_part.js";
import { positions } from "./positions.js";
import { percent, rate } from "./units.js";

const FULL = 10000;

export function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) =>
      setWidth(Math.floor(entry.contentRect.width)),
    );
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

export function Network({ layout, frame, select: onSelect, chosen, dark }) {
  const [by, setBy] = useState("reserved");
  const box = useRef();
  const svg = useRef();
  const inner = useRef();
  const zooming = useRef();
  const width = useWidth(box);
  const placed = useMemo(
    () => (width ? positions(layout, width) : null),
    [layout, width],
  );
  useEffect(() => {
    if (!placed) return;
    const behaviour = zoom()
      .scaleExtent([1, 16])
      .translateExtent([[0, 0], [placed.width, placed.height]])
      // The wheel alone scrolls the page.
      .filter((event) => event.type !== "wheel" || event.ctrlKey)
      .on("zoom", (event) => inner.current.setAttribute("transform", event.transform));
    zooming.current = behaviour;
    select(svg.current).call(behaviour);
  }, [placed]);
  const zoomBy = (factor) =>
    zooming.current.scaleBy(select(svg.current), factor);
  const use = (by === "sent" && frame.sent) || frame.reserved || [];
  return (
    <section class="network">
      <div class="bar">
        <h2>Data centre</h2>
        <label>
          links by{" "}
          <select value={by} onChange={(event) => setBy(event.target.value)}>
            <option value="reserved">reserved bandwidth</option>
            <option value="sent" disabled={!frame.sent}>measured rate</option>
          </select>
        </label>
        <span class="buttons">
          <button onClick={() => zoomBy(1.5)} aria-label="zoom in">+</button>
          <button onClick={() => zoomBy(1 / 1.5)} aria-label="zoom out">−</button>
          <button onClick={() => zooming.current.transform(select(svg.current), zoomIdentity)}>
            whole
          </button>
        </span>
        <Files title="data centre" svg={() => svg.current} rows={() => rowsOf(layout, frame)} />
      </div>
      <div ref={box} class="drawing">
        {placed && (
          <svg ref={svg} width={placed.width} height={placed.height} role="group"
               aria-label="data centre: choose a node for its history">
            <g ref={inner}>
              <Links layout={layout} placed={placed} use={use} frame={frame}
                     onSelect={onSelect} chosen={chosen} />
              <Nodes layout={layout} placed={placed} use={use} frame={frame}
                     onSelect={onSelect} chosen={chosen} dark={dark} />
            </g>
          </svg>
        )}
      </div>
      <Legend />
    </section>
  );
}

// A row a directed link, then a row a node and job on it.
function rowsOf(layout, frame) {
  const down = frame.down || { links: [], nodes: [] };
  const rows = [["part", "name", "direction", "capacity_bps", "reserved_bps", "sent_bps", "vm_slots", "job", "vms", "is_down"]];
  layout.links.forEach((link, number) => {
    ["up", "down"].forEach((direction, side) => {
      const capacity = direction === "up" ? link.up_bps : link.down_bps;
      const bps = (use) => (use ? ((use[2 * number + side] || 0) / FULL) * capacity : null);
      rows.push(["link", link.name, direction, capacity, bps(frame.reserved || []), bps(frame.sent),
                 null, null, null, down.links.includes(number)]);
    });
  });
  layout.nodes.forEach((node, index) => {
    const vms = (frame.placed && frame.placed[index]) || NONE;
    for (const [job, n] of vms.length ? vms : [[null, 0]]) {
      rows.push(["node", node.name, null, null, null, null, node.slots, job, n, down.nodes.includes(index)]);
    }
  });
  return rows;
}

function Legend() {
  return (
    <ul class="legend" aria-label="colours of links by the used share of their capacity">
      {STEPS.map(([name, text]) => (
        <li><span class={`swatch use-${name}`} /> {text}</li>
      ))}
      <li><span class="swatch use-down" /> down</li>
      <li><span class="swatch slot-free" /> free VM slot</li>
    </ul>
  );
}

function linkUse(use, number) {
  return Math.max(use[2 * number] || 0, use[2 * number + 1] || 0) / FULL;
}

function stepName(use, number, down) {
  return down.has(number) ? "down" : STEPS[step(linkUse(use, number))][0];
}

function linkText(link, upward, downward) {
  const up = (upward || 0) / FULL;
  const down = (downward || 0) / FULL;
  return (
    `${link.name}: up ${rate(up * link.up_bps)} (${percent(up)}),` +
    ` down ${rate(down * link.down_bps)} (${percent(down)})` +
    ` of ${rate(link.up_bps)}`
  );
}

function Links({ layout, placed, use, frame, onSelect, chosen }) {
  const down = new Set(frame.down ? frame.down.links : []);
  return layout.links.map((link, number) => {
    if (link.lower === link.upper) return null;
    const a = placed.at[link.lower];
    const b = placed.at[link.upper];
    const leaf = placed.level[link.lower] === 0;
    // In blocks of several rows lines would cross cells: a bar has the colour.
    if (!a || !b || (leaf && placed.rows > 1)) return null;
    const isChosen = chosen && chosen.of === "link" && chosen.name === String(number);
    return (
      <Line key={number} link={link} number={number} a={a} b={b} isChosen={isChosen}
            name={stepName(use, number, down)} up={use[2 * number]} back={use[2 * number + 1]}
            onSelect={onSelect} />
    );
  });
}

// The same element as long as nothing of it changes: a data centre has hundreds.
const Line = kept(({ link, number, a, b, isChosen, name, up, back, onSelect }) => (
      <line class={`link use-${name}${isChosen ? " chosen" : ""}`}
            x1={a.x} y1={a.y} x2={b.x} y2={b.y + b.height}
            onClick={() => onSelect("link", String(number))}>
        <title>{linkText(link, up, back)}</title>
      </line>
), ({ link, a, b, isChosen, name, up, back }) => [link, a, b, isChosen, name, up, back]);

function onKey(event, act) {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  act();
}

function Nodes({ layout, placed, use, frame, onSelect, chosen, dark }) {
  const down = new Set(frame.down ? frame.down.nodes : []);
  const downLinks = new Set(frame.down ? frame.down.links : []);
  const uplinks = useMemo(() => {
    const first = new Map();
    layout.links.forEach((link, number) => {
      if (!first.has(link.lower) && link.lower !== link.upper) first.set(link.lower, number);
    });
    // A rack's own links are drawn with it.
    layout.links.forEach((link, number) => {
      if (link.lower === link.upper && !first.has(link.lower)) first.set(link.lower, number);
    });
    return first;
  }, [layout]);
  return layout.nodes.map((node, index) => {
    const at = placed.at[index];
    if (!at) return null;
    const isChosen = chosen && chosen.of === "node" && chosen.name === String(index);
    let bar = "";
    if (node.slots > 0 && placed.rows > 1 && uplinks.has(index)) {
      bar = stepName(use, uplinks.get(index), downLinks);
    }
    return (
      <Node key={index} node={node} index={index} at={at} bar={bar} isChosen={isChosen}
            vms={(frame.placed && frame.placed[index]) || NONE} isDown={down.has(index)}
            onSelect={onSelect} dark={dark} />
    );
  });
}

const NONE = [];

const Node = kept(({ node, index, at, bar, isChosen, vms, isDown, onSelect, dark }) => {
  const choose = () => onSelect("node", String(index));
  const taken = vms.reduce((n, [, k]) => n + k, 0);
  const text = node.slots ? `${node.name}: ${taken} of ${node.slots} VM slots taken` : node.name;
  return (
      <g class={`node${isChosen ? " chosen" : ""}${isDown ? " down" : ""}`}
         transform={`translate(${at.x - at.width / 2},${at.y})`} role="button" tabindex={0}
         aria-label={text} onClick={choose} onKeyDown={(event) => onKey(event, choose)}>
        <title>{text}</title>
        <rect class="box" width={at.width} height={at.height} rx="3" />
        {node.slots > 0 && <Slots node={node} vms={vms} at={at} onSelect={onSelect} dark={dark} />}
        {bar && <rect class={`bar use-${bar}`} width={at.width} height="5" />}
        <Label node={node} at={at} />
      </g>
  );
}, ({ node, at, bar, isChosen, isDown, dark, vms }) => [node, at, bar, isChosen, isDown, dark, vms.join()]);

const LETTER = 6.2;

function Label({ node, at }) {
  let text = node.name;
  if (text.length * LETTER > at.width) text = text.split(" ").pop();
  if (text.length * LETTER > at.width) return null;
  const y = node.slots ? at.height + 11 : 12;
  return <text x={at.width / 2} y={y} text-anchor="middle">{text}</text>;
}

const SLOT = 11;

// A VM is chosen by its square; by keys, its job in the table below.
function chooses(name, onSelect) {
  return (event) => {
    event.stopPropagation();
    onSelect("job", name);
  };
}

function Slots({ node, vms, at, onSelect, dark }) {
  const room = Math.max(1, at.width - 6);
  const columns = Math.max(1, Math.floor(room / (SLOT + 2)));
  const inRows = Math.ceil(node.slots / columns);
  if (inRows * (SLOT + 2) > at.height - 6) {
    return <Share node={node} vms={vms} at={at} onSelect={onSelect} dark={dark} />;
  }
  const names = [];
  for (const [name, n] of vms) for (let i = 0; i < n; i += 1) names.push(name);
  const squares = [];
  const used = Math.min(columns, node.slots);
  const left = (at.width - used * (SLOT + 2) + 2) / 2;
  for (let i = 0; i < Math.max(node.slots, names.length); i += 1) {
    const name = names[i];
    squares.push(
      <rect key={i} class={name ? "slot" : "slot slot-free"} x={left + (i % columns) * (SLOT + 2)}
            y={6 + Math.floor(i / columns) * (SLOT + 2)} width={SLOT} height={SLOT}
            onClick={name ? chooses(name, onSelect) : undefined}
            style={name ? { fill: tenantColour(name, dark) } : undefined}>
        {name && <title>{`VM of ${name} on ${node.name}`}</title>}
      </rect>,
    );
  }
  return squares;
}

// Too many slots for squares: a bar, as long as the share that is taken.
function Share({ node, vms, at, onSelect, dark }) {
  const room = Math.max(1, at.width - 6);
  const bars = [];
  let x = 3;
  for (const [name, n] of vms) {
    const width = (room * n) / node.slots;
    bars.push(<rect key={name} x={x} y="9" width={width} height={at.height - 14} onClick={chooses(name, onSelect)}
                    style={{ fill: tenantColour(name, dark) }} />);
    x += width;
  }
  return [<rect key="" class="slot-free" x="3" y="9" width={room} height={at.height - 14} />, ...bars];
}
