// The page of testbed watch, and of the file that testbed share writes.

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { Chart } from "./chart.jsx";
import { Item } from "./item.jsx";
import { Ended, Jobs } from "./jobs.jsx";
import { Lanes } from "./lanes.jsx";
import { Network } from "./network.jsx";
import { Sweep } from "./sweep.jsx";
import { fromRecording, fromServer } from "./sources.js";
import { count, duration, percent } from "./units.js";

const KEPT_MOMENTS = 3600;
const SPEEDS = [1, 2, 10, 60, 600, 3600, 36000];

const state = {
  notice: "",
  error: "",
  sources: [],
  header: null,
  frame: null,
  curves: [],
  item: null,
  chosen: null,
  lanes: null,
};
let send = () => {};

let isDue = false;

function draw() {
  isDue = false;
  render(<Page {...state} />, document.getElementById("page"));
}

// However many messages come, the page is drawn once for each of the screen's pictures.
function change(parts) {
  Object.assign(state, parts);
  if (isDue) return;
  isDue = true;
  if (document.hidden) setTimeout(draw, 0);
  else requestAnimationFrame(draw);
}

// A page that stays open for hours keeps no more than this: every second moment goes.
function kept(curves) {
  if (curves.length <= KEPT_MOMENTS) return curves;
  return curves.filter((_, index) => index % 2 === 0);
}

const RECEIVERS = {
  connected: () => change({ notice: "" }),
  gone: (message) => change({ notice: message.says }),
  error: (message) => change({ error: message.says }),
  "nothing yet": () => change({ notice: "The run has not begun: its network is being built and tested." }),
  sources: (message) => change({ sources: message.sources }),
  layout: (message) => {
    document.title = [message.name, message.policy].filter(Boolean).join(" ") || "Hosenet";
    change({ header: message, frame: null, curves: message.curves, item: null, chosen: null, error: "", lanes: null });
    lanesAtMs = performance.now();
    if (message.of === "run" && message.layout) send({ do: "lanes" });
  },
  lanes: (message) => change({ lanes: message }),
  item: (message) => change({ item: message, error: "" }),
  frame: (message) => {
    const parts = { frame: message };
    askAgain(message);
    askForLanes(message);
    if (message.mode === "live" && message.totals) {
      const last = state.curves[state.curves.length - 1];
      if (!last || message.totals.t > last.t) parts.curves = kept([...state.curves, message.totals]);
    }
    change(parts);
  },
};

const ASKED_EVERY_S = 2;
let askedAtS = 0;

// The history of what is chosen grows with the run.
function askAgain(frame) {
  const { chosen, item, frame: before } = state;
  const grows = frame.mode === "live" && before && frame.at_s > before.at_s;
  if (!grows || !item || !chosen || Math.abs(frame.at_s - askedAtS) < ASKED_EVERY_S) return;
  askedAtS = frame.at_s;
  send({ do: "item", ...chosen });
}

const LANES_EVERY_MS = 5000;
let lanesAtMs = 0;

// Of a run that goes on, the servers' bars grow with it.
function askForLanes(frame) {
  const { header, frame: before } = state;
  const grows = frame.mode === "live" && before && frame.at_s > before.at_s;
  if (!grows || header.of !== "run" || performance.now() - lanesAtMs < LANES_EVERY_MS) return;
  lanesAtMs = performance.now();
  send({ do: "lanes" });
}

function receive(message) {
  RECEIVERS[message.kind](message);
}

function onSelect(of, name) {
  change({ chosen: { of, name }, error: "" });
  askedAtS = state.frame ? state.frame.at_s : 0;
  send({ do: "item", of, name });
}

function useDark() {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const listener = () => setDark(query.matches);
    query.addEventListener("change", listener);
    return () => query.removeEventListener("change", listener);
  }, []);
  return dark;
}

function Page({ notice, error, sources, header, frame, curves, item, chosen, lanes }) {
  const dark = useDark();
  const source = (header && sources[header.number]) || null;
  const status = source ? source.status : "";
  const trouble = (source && source.trouble) || "";
  return (
    <>
      <Notices notice={notice} error={error} trouble={trouble} />
      {!header && !error && <p class="empty">Waiting for the run…</p>}
      {header && <Heading header={header} status={status} sources={sources} />}
      {header && frame && frame.sweep && <Sweep sweep={frame.sweep} at={frame.at_s} status={status} />}
      {header && frame && frame.totals && (
        <>
          <Sentence header={header} frame={frame} status={status} />
          {header.of === "run" && <Controls header={header} frame={frame} status={status} />}
          <div class={item ? "columns with-item" : "columns"}>
            <div>
              {header.layout && (
                <Network layout={header.layout} frame={frame} select={onSelect} chosen={chosen} dark={dark} />
              )}
              <Curves header={header} curves={curves} at={frame.at_s} dark={dark} />
              {lanes && lanes.lanes.length > 0 && (
                <Lanes lanes={lanes.lanes} servers={lanes.servers} begin={header.begin_s}
                       end={Math.max(header.end_s, curves.length ? curves[curves.length - 1].t : 0)}
                       at={frame.at_s} onSelect={onSelect} dark={dark} />
              )}
              <Jobs frame={frame} onSelect={onSelect} dark={dark} />
              <Ended frame={frame} onSelect={onSelect} dark={dark} />
              <Rejections frame={frame} />
              <Log frame={frame} />
              <Fidelity frame={frame} />
            </div>
            {item && (
              <Item item={item} layout={header.layout} at={frame.at_s} dark={dark} onSelect={onSelect}
                    close={() => change({ item: null, chosen: null })} />
            )}
          </div>
        </>
      )}
    </>
  );
}

function Notices({ notice, error, trouble }) {
  return (
    <div role="alert" class="notices">
      {[trouble && `Damaged or incomplete: ${trouble}`, error, notice].filter(Boolean).map((text) => (
        <p class="notice" key={text}>{text}</p>
      ))}
    </div>
  );
}

function Heading({ header, status, sources }) {
  const kinds = { live: "live on an emulated network", sim: "simulated" };
  const kind = header.of === "sweep" ? "sweep, " : "";
  const what = header.of === "network" ? "the network that is up" : kinds[header.backend] || header.backend;
  return (
    <header>
      <h1>{header.name}</h1>
      <p class="sub">
        <span class={`chip ${status}`}>{status}</span> {kind}{what}
        {header.policy && `, policy ${header.policy}`}
        {header.seed !== null && `, seed ${header.seed}`} · {header.folder}
      </p>
      {sources.length > 1 && (
        <label>
          policy{" "}
          <select value={header.number} onChange={(event) => send({ do: "source", number: Number(event.target.value) })}>
            {sources.map((source, number) => (
              <option value={number} key={number}>{source.policy} ({source.status})</option>
            ))}
          </select>
        </label>
      )}
    </header>
  );
}

function Sentence({ header, frame, status }) {
  const { totals, ended } = frame;
  const slots = header.layout ? header.layout.nodes.reduce((n, node) => n + node.slots, 0) : 0;
  const parts = [];
  if (frame.tenants) {
    parts.push(count(totals.running, "tenant", "tenants"));
  } else {
    parts.push(`${count(totals.running, "job runs", "jobs run")}, ${totals.waiting} wait`);
    for (const outcome of ["finished", "rejected", "killed", "unfinished"]) {
      if (ended[outcome]) parts.push(`${ended[outcome].toLocaleString("en")} ${outcome}`);
    }
  }
  if (slots) parts.push(`${percent(totals.slots_used / slots)} of ${slots.toLocaleString("en")} VM slots taken`);
  parts.push(`${percent(totals.reserved_share)} of all bandwidth reserved`);
  if (frame.controller) parts.push(`controller: ${frame.controller}`);
  const verdict = frame.fidelity.verdict;
  return (
    <p class="sentence">
      <strong>{status === "finished" && frame.mode === "live" ? "At its end" : "At"} {duration(frame.at_s)}</strong>:{" "}
      {parts.join("; ")}.{verdict && <> Fidelity: <span class={`chip ${verdict}`}>{verdict}</span></>}
    </p>
  );
}

function defaultSpeed(header) {
  const span = header.end_s - header.begin_s;
  return SPEEDS.find((speed) => span / speed <= 60) || SPEEDS[SPEEDS.length - 1];
}

// The slider stays where it was put until the server's answer is drawn: a late answer to the key
// press before would throw it back, and the next press would start from there.
const ANSWER_MS = 2000;

function Seek({ header, frame, end }) {
  const [sought, setSought] = useState(null);
  const step = (end - header.begin_s) / 1000 || 1;
  useEffect(() => {
    if (sought !== null && Math.abs(frame.at_s - sought) <= step / 2) setSought(null);
  }, [frame.at_s, sought, step]);
  useEffect(() => {
    if (sought === null) return undefined;
    const timer = setTimeout(() => setSought(null), ANSWER_MS);
    return () => clearTimeout(timer);
  }, [sought]);
  const seek = (event) => {
    const at = Number(event.target.value);
    setSought(at);
    send({ do: "seek", at_s: at });
  };
  return (
    <label class="seek">
      <span>time {duration(frame.at_s)} of {duration(end)}</span>
      <input type="range" min={header.begin_s} max={end} step={step}
             value={sought ?? frame.at_s} aria-valuetext={duration(frame.at_s)} onInput={seek} />
    </label>
  );
}

function Controls({ header, frame, status }) {
  const [speed, setSpeed] = useState(defaultSpeed(header));
  const end = Math.max(header.end_s, frame.mode === "live" ? frame.at_s : 0, header.begin_s);
  const playing = frame.mode === "replay" && frame.speed > 0;
  const atEnd = frame.at_s >= end;
  const play = () => {
    if (!playing && atEnd) send({ do: "seek", at_s: header.begin_s });
    send({ do: "play", speed: playing ? 0 : speed });
  };
  const choose = (event) => {
    const chosen = Number(event.target.value);
    setSpeed(chosen);
    if (playing) send({ do: "play", speed: chosen });
  };
  return (
    <div class="controls" role="group" aria-label="replay">
      <button onClick={play}>{playing ? "pause" : "play"}</button>
      <label>
        speed{" "}
        <select value={speed} onChange={choose}>
          {SPEEDS.map((one) => <option value={one} key={one}>{one.toLocaleString("en")} ×</option>)}
        </select>
      </label>
      <Seek header={header} frame={frame} end={end} />
      {frame.mode === "replay" && (
        <button onClick={() => send({ do: "live" })}>{status === "live" ? "live" : "to the end"}</button>
      )}
    </div>
  );
}

function Curves({ header, curves, at, dark }) {
  const times = useMemo(() => curves.map((one) => one.t), [curves]);
  const slots = header.layout ? header.layout.nodes.reduce((n, node) => n + node.slots, 0) : 0;
  const shares = useMemo(() => {
    const series = [
      { label: "bandwidth reserved", values: curves.map((one) => one.reserved_share * 100), colour: "--series-1", stepped: true },
    ];
    if (slots) {
      series.push({ label: "VM slots taken", values: curves.map((one) => (one.slots_used / slots) * 100), colour: "--series-3", stepped: true, dash: [8, 3] });
    }
    if (curves.some((one) => one.sent_share !== undefined)) {
      series.push({ label: "bandwidth sent", values: curves.map((one) => (one.sent_share ?? 0) * 100), colour: "--series-2" });
    }
    return series;
  }, [curves, slots]);
  const ofNetwork = header.of === "network";
  const numbers = useMemo(() => {
    const running = curves.map((one) => one.running);
    const series = [{ label: ofNetwork ? "tenants" : "running", values: running, colour: "--series-3", stepped: true }];
    if (!ofNetwork) {
      const waiting = curves.map((one) => one.waiting);
      series.push({ label: "waiting", values: waiting, colour: "--series-2", stepped: true, dash: [6, 3] });
    }
    return series;
  }, [curves, ofNetwork]);
  if (curves.length < 2) return null;
  return (
    <section class="curves">
      <Chart title="Used share of the data centre" times={times} series={shares} unit="share [%]" at={at} dark={dark} />
      <Chart title={ofNetwork ? "Tenants" : "Jobs that run and wait"} times={times}
             series={numbers} unit={ofNetwork ? "tenants" : "jobs"} at={at} dark={dark} />
    </section>
  );
}

function Rejections({ frame }) {
  if (!frame.rejections.length) return null;
  return (
    <section>
      <h2>Rejections</h2>
      <ul>
        {frame.rejections.map(([reason, n]) => <li key={reason}><strong>{n.toLocaleString("en")} ×</strong> {reason}</li>)}
      </ul>
    </section>
  );
}

function Log({ frame }) {
  if (!frame.log.length) return null;
  return (
    <section>
      <h2>Failures and other incidents</h2>
      <ol class="lines">
        {[...frame.log].reverse().map(([t, text]) => <li><span class="time">{duration(t)}</span> {text}</li>)}
      </ol>
    </section>
  );
}

function Fidelity({ frame }) {
  const { verdict, notes } = frame.fidelity;
  if (!verdict || !notes.length) return null;
  return (
    <section>
      <h2>Fidelity of the emulation</h2>
      <div class="scroll" tabindex={0} role="region" aria-label="fidelity">
        <table>
          <thead><tr><th scope="col" class="number">At</th><th scope="col">Verdict</th><th scope="col">Check</th><th scope="col">Finding</th></tr></thead>
          <tbody>
            {notes.map(([t, level, check, reason]) => (
              <tr>
                <td class="number">{duration(t)}</td><td class={level}>{level}</td>
                <td>{check}</td><td class="text">{reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const recording = document.getElementById("recording");
change({});
send = recording ? fromRecording(recording.textContent, receive) : fromServer(receive);
