// A sweep: how many of its cells there are, and the table so far.

import { duration } from "./units.js";

export function Sweep({ sweep, at, status }) {
  const done = sweep.computed + sweep.kept + sweep.failed;
  const parts = [`${sweep.computed.toLocaleString("en")} computed`, `${sweep.kept.toLocaleString("en")} there already`];
  if (sweep.failed) parts.push(`${sweep.failed.toLocaleString("en")} failed`);
  return (
    <>
      <p class="sentence">
        <strong>{done.toLocaleString("en")} of {sweep.asked.toLocaleString("en")} cells</strong>: {parts.join(", ")}
        {status === "live" && `, after ${duration(at)}`}.
        {" "}<progress value={done} max={Math.max(1, sweep.asked)} aria-label="cells that are there" />
      </p>
      {sweep.rows.length > 0 && (
        <section>
          <h2>Means, ± half the 95 % interval</h2>
          <div class="scroll tall" tabindex={0} role="region" aria-label="means">
            <table>
              <thead>
                <tr>
                  {sweep.columns.map((column, place) => <th scope="col" class={place < sweep.n_keys ? "" : "number"}>{column}</th>)}
                </tr>
              </thead>
              <tbody>
                {sweep.rows.map((row) => (
                  <tr>{row.map((cell, place) => <td class={place < sweep.n_keys ? "" : "number"}>{cell}</td>)}</tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </>
  );
}
