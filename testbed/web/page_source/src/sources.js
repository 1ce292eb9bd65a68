// Where the page's messages come from: a server, or the page's own recording.

const RETRY_MS = 3000;

export const GONE =
  "The server of this page has ended or cannot be reached; testbed watch starts it again. Trying…";

export function fromServer(receive) {
  const token = location.hash.slice(1);
  let socket = null;
  let refused = false;
  const connect = () => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${location.host}/socket`);
    socket.onopen = () => {
      receive({ kind: "connected" });
      socket.send(token);
    };
    socket.onmessage = (event) => receive(JSON.parse(event.data));
    socket.onclose = (event) => {
      refused = refused || event.code === 4401;
      if (refused) return;
      receive({ kind: "gone", says: GONE });
      setTimeout(connect, RETRY_MS);
    };
  };
  connect();
  return (message) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
  };
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const STEP_MS = 100;

// A page without a server: headers, frames at some moments, items.
export function fromRecording(text, receive) {
  let runs = [];
  let number = 0;
  let atS = 0;
  let speed = 0;
  const show = (mode) => {
    const run = runs[number];
    let frame = run.frames[0];
    for (const later of run.frames) if (later.at_s <= atS) frame = later;
    receive({ ...frame, kind: "frame", at_s: atS, speed, mode });
  };
  const open = (which) => {
    number = which;
    const run = runs[number];
    atS = run.header.end_s;
    speed = 0;
    receive({ ...run.header, number });
    show("live");
  };
  const commands = {
    source: (message) => open(message.number),
    live: () => open(number),
    seek: (message) => {
      atS = message.at_s;
      show("replay");
    },
    play: (message) => {
      speed = message.speed;
      show("replay");
    },
    lanes: () => receive(runs[number].lanes),
    item: (message) => {
      const item = runs[number].items[`${message.of} ${message.name}`];
      if (item) receive({ kind: "item", of: message.of, name: message.name, ...item });
      else receive({ kind: "error", says: `This file holds no history of ${message.of} ${message.name}: testbed watch shows it from the run's folder.` });
    },
  };
  setInterval(() => {
    if (!speed) return;
    const end = runs[number].header.end_s;
    atS = Math.min(end, atS + (speed * STEP_MS) / 1000);
    if (atS >= end) speed = 0;
    show("replay");
  }, STEP_MS);
  unpacked(text).then((recording) => {
    runs = recording.runs;
    receive({ kind: "connected" });
    receive({ kind: "sources", sources: runs.map((run) => run.label) });
    open(0);
  });
  return (message) => commands[message.do](message);
}
