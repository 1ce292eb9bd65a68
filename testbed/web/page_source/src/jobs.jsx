// Jobs, tenants and what became of them.

import { tenantColour } from "./colours.js";
import { kept } from "./kept_part.js";
import { count, duration, percent, rate } from "./units.js";

// The fields of a job's row, as the server sends them.
export const ROW = {
  id: 0, application: 1, state: 2, vms: 3, bps: 4, submitS: 5, startS: 6,
  estimateS: 7, progress: 8, measuredS: 9, deadlineS: 10, tier: 11, reason: 12,
};

function Name({ of, name, onSelect, dark }) {
  return (
    <button class="name" onClick={() => onSelect(of, name)}>
      <span class="swatch" style={{ background: tenantColour(name, dark) }} />
      {name}
    </button>
  );
}

function Progress({ share, name }) {
  if (share === null) return "–";
  return (
    <span class="progress">
      <progress value={share} max="1" aria-label={`progress of ${name}`} /> {percent(share)}
    </span>
  );
}

function expectedEnd(row) {
  if (row[ROW.startS] === null || row[ROW.estimateS] === null) return "–";
  return duration(row[ROW.startS] + row[ROW.estimateS]);
}

// A row is the same for as long as its fields are.
const rowShown = ({ row, dark }) => [row.join(), dark];

const Job = kept(({ row, onSelect, dark }) => (
      <tr>
        <td><Name of="job" name={row[ROW.id]} onSelect={onSelect} dark={dark} /></td>
        <td class={row[ROW.state]}>
          {row[ROW.state]}{row[ROW.tier] === "foreground" ? "" : `, ${row[ROW.tier]}`}
        </td>
        <td class="number">{row[ROW.vms]}</td>
        <td class="number">{row[ROW.bps] ? rate(row[ROW.bps]) : "–"}</td>
        <td class="number">{duration(row[ROW.submitS])}</td>
        <td class="number">{duration(row[ROW.startS])}</td>
        <td class="number">{expectedEnd(row)}</td>
        <td><Progress share={row[ROW.progress]} name={row[ROW.id]} /></td>
        <td class="text">{row[ROW.reason]}</td>
      </tr>
), rowShown);

const EndedJob = kept(({ row, onSelect, dark }) => {
  const ratio = row[ROW.measuredS] && row[ROW.estimateS] && row[ROW.measuredS] / row[ROW.estimateS];
  return (
      <tr>
        <td><Name of="job" name={row[ROW.id]} onSelect={onSelect} dark={dark} /></td>
        <td class={row[ROW.state]}>{row[ROW.state]}</td>
        <td class="number">{duration(row[ROW.estimateS])}</td>
        <td class="number">{duration(row[ROW.measuredS])}</td>
        <td class="number">{ratio ? ratio.toFixed(4) : "–"}</td>
        <td class="text">{row[ROW.reason]}</td>
      </tr>
  );
}, rowShown);

export function Jobs({ frame, onSelect, dark }) {
  if (frame.tenants) return <Tenants tenants={frame.tenants} onSelect={onSelect} dark={dark} />;
  if (!frame.jobs.length) return <section><h2>Jobs now</h2><p>No job runs or waits.</p></section>;
  return (
    <section>
      <h2>Jobs now</h2>
      <div class="scroll" tabindex={0} role="region" aria-label="jobs now">
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th><th scope="col">State</th>
              <th scope="col" class="number">VMs</th><th scope="col" class="number">Bandwidth a VM</th>
              <th scope="col" class="number">Submitted</th><th scope="col" class="number">Started</th>
              <th scope="col" class="number">Estimated end</th><th scope="col">Progress</th>
              <th scope="col">Why it waits</th>
            </tr>
          </thead>
          <tbody>
            {frame.jobs.map((row) => <Job key={row[ROW.id]} row={row} onSelect={onSelect} dark={dark} />)}
          </tbody>
        </table>
      </div>
      {frame.more_jobs > 0 && <p>and {count(frame.more_jobs, "more job", "more jobs")}</p>}
    </section>
  );
}

function Tenants({ tenants, onSelect, dark }) {
  return (
    <section>
      <h2>Tenants</h2>
      {!tenants.length && <p>No tenant yet: <code>sudo testbed tenant add NAME --vms N --bandwidth RATE</code></p>}
      {tenants.length > 0 && (
        <div class="scroll" tabindex={0} role="region" aria-label="tenants">
          <table>
            <thead>
              <tr>
                <th scope="col">Tenant</th><th scope="col" class="number">VMs</th>
                <th scope="col" class="number">Bandwidth a VM</th><th scope="col" class="number">Reserved</th>
                <th scope="col" class="number">Sent</th><th scope="col" class="number">Queued</th>
                <th scope="col" class="number">Packets dropped</th><th scope="col">Enforcement</th>
              </tr>
            </thead>
            <tbody>
              {tenants.map((tenant) => (
                <tr key={tenant.name}>
                  <td><Name of="job" name={tenant.name} onSelect={onSelect} dark={dark} /></td>
                  <td class="number">{tenant.n_vms}</td>
                  <td class="number">{rate(tenant.bandwidth_bps)}</td>
                  <td class="number">{rate(tenant.reserved_bps)}</td>
                  <td class="number">{rate(tenant.sent_bps)}</td>
                  <td class="number">{tenant.queued_bytes ?? "–"} B</td>
                  <td class="number">{tenant.dropped ?? "–"}</td>
                  <td>{tenant.enforcement}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

export function Ended({ frame, onSelect, dark }) {
  if (!frame.recent.length) return null;
  return (
    <section>
      <h2>Ended last</h2>
      <div class="scroll" tabindex={0} role="region" aria-label="jobs that ended last">
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th><th scope="col">Outcome</th>
              <th scope="col" class="number">Estimate</th><th scope="col" class="number">Measured</th>
              <th scope="col" class="number">Measured / estimate</th><th scope="col">Reason</th>
            </tr>
          </thead>
          <tbody>
            {frame.recent.map((row) => <EndedJob key={row[ROW.id]} row={row} onSelect={onSelect} dark={dark} />)}
          </tbody>
        </table>
      </div>
    </section>
  );
}
