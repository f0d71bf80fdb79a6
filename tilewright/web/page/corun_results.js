// Results of co-running as rows of one kind, points of a frontier, and spans of a timeline.
// Input: text of files: output of `tilewright corun` (--json, --trace), records of the benchmark corun.policies.  Output: plain data.
// It touches no element and asks no server.

/**
 * A run.  Slowdowns are multiples of the critical model's time alone: `p50`, `p99`, `p999` with waiting, `service_*` from the begin
 * of each request.  `max_slowdown`: the bound that was given; null: the policy takes none.  `sms`: null for the whole GPU.
 * @typedef {{pair: string, policy: string, sms: number | null, kernels: string, clients: number | null, l2_persistence: boolean,
 *   max_slowdown: number | null, n: number, normal_share: number, total_over_sequential: number | null} & Record<Measure, number>} Run
 * @typedef {'p99' | 'p999' | 'p50' | 'service_p99' | 'service_p999' | 'service_p50'} Measure
 * Medians of the runs with one setting, policy and bound; `n`: requests of all of them.
 * @typedef {Run & {runs: number}} Point
 * Microseconds; `lane`: of the blocks that were resident together.
 * @typedef {{sm: number, lane: number, begin: number, long: number, task: string, critical: boolean}} Span
 * @typedef {{name: string, runs: Run[], refused: number, spans: Span[]}} Results
 */

/** What slowdowns can be shown, and in which words. @type {Record<Measure, string>} */
export const MEASURES = {
  p99: 'p99 with waiting', p999: 'p99.9 with waiting', p50: 'p50 with waiting',
  service_p99: 'p99 from begin', service_p999: 'p99.9 from begin', service_p50: 'p50 from begin',
};
const NAMES = /** @type {Measure[]} */ (Object.keys(MEASURES));

/** What one picture has in common. */
export const SETTING = /** @type {const} */ (['pair', 'sms', 'kernels', 'clients', 'l2_persistence']);
const POINT = /** @type {const} */ ([...SETTING, 'policy', 'max_slowdown']);

/**
 * @param {string} name of the file
 * @param {string} text
 * @returns {Results} throws an Error that names the file
 */
export function read(name, text) {
  /** @type {Results} */
  const found = { name, runs: [], refused: 0, spans: [] };
  for (const document of documents(name, text)) {
    if (Array.isArray(document?.rows)) {
      const runs = document.rows.filter((/** @type {any} */ row) => !row?.error);
      found.runs.push(...runs.map((/** @type {any} */ row) => runOf(name, row)));
      found.refused += document.rows.length - runs.length;
    } else if (Array.isArray(document?.traceEvents)) found.spans.push(...spansOf(document.traceEvents));
    else if (document?.error) found.refused += 1;
    else found.runs.push(...ofCommand(document).map((row) => runOf(name, row)));
  }
  return found;
}

/** One JSON document, or one on each line. @param {string} name @param {string} text @returns {any[]} */
function documents(name, text) {
  try {
    return [JSON.parse(text)];
  } catch {
    try {
      return text.split('\n').filter((line) => line.trim()).map((line) => JSON.parse(line));
    } catch (error) {
      throw new Error(`${name} is not JSON: ${error instanceof Error ? error.message : error}`);
    }
  }
}

/**
 * The command gives the bound's slowdowns the short names; benchmarks give them to those with waiting.  Several critical models are a
 * run of each, beside the same normal work.
 * @param {any} found
 * @returns {any[]}
 */
function ofCommand(found) {
  const { critical, ...shared } = found ?? {};
  const models = Array.isArray(critical) ? critical.map((one) => ({ ...one, pair: `${shared.pair}: ${one?.model}` })) : [{}];
  return models.map((own) => {
    const row = { ...shared, ...own };
    return {
      ...row, p50: row.p50_with_waiting, p99: row.p99_with_waiting, p999: row.p999_with_waiting,
      service_p50: row.p50, service_p99: row.p99, service_p999: row.p999, normal_share: row.normal_share_of_possible, n: row.requests,
    };
  });
}

/** @param {string} name @param {any} row @returns {Run} */
function runOf(name, row) {
  const numbers = [...NAMES, 'normal_share', 'n'];
  if (typeof row?.policy !== 'string' || !numbers.every((key) => Number.isFinite(row[key]))) {
    throw new Error(`${name} has no results of co-running`);
  }
  const { gpu, pair = name, sms = null, kernels = '', clients = null, l2_persistence = false, max_slowdown = null, total_over_sequential = null } = row;
  return { ...row, pair: gpu ? `${pair} on ${gpu}` : String(pair), sms, kernels, clients, l2_persistence, max_slowdown, total_over_sequential };
}

/** Of Chrome's trace format as elastic/timeline.py writes it: a process for each SM, a thread for each lane. @param {any[]} events @returns {Span[]} */
function spansOf(events) {
  return events.filter(({ ph, ts, dur }) => ph === 'X' && Number.isFinite(ts) && Number.isFinite(dur))
    .map(({ pid, tid, ts, dur, name, cat }) => ({ sm: Number(pid), lane: Number(tid), begin: ts, long: dur, task: String(name), critical: cat === 'critical' }));
}

/** @param {Run[]} runs @returns {Point[]} */
export function pointsOf(runs) {
  /** @type {Map<string, Run[]>} */
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify(POINT.map((name) => run[name]));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  const middles = /** @type {const} */ ([...NAMES, 'normal_share', 'total_over_sequential']);
  return [...groups.values()].map((same) => ({
    ...same[0],
    ...Object.fromEntries(middles.map((key) => [key, median(same.map((run) => run[key]))])),
    n: same.reduce((sum, { n }) => sum + n, 0),
    runs: same.length,
  }));
}

/** Of those that are known; null if none is. @param {(number | null)[]} values */
function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  const half = known.length >> 1;
  return known.length === 0 ? null : known.length % 2 ? known[half] : (known[half - 1] + known[half]) / 2;
}

/** Points that no other one beats or equals in both, by slowdown. @param {Point[]} points @param {Measure} measure */
export function best(points, measure) {
  const sorted = points.toSorted((a, b) => a[measure] - b[measure] || b.normal_share - a.normal_share);
  let most = -Infinity;
  return sorted.filter(({ normal_share }) => normal_share > most && ((most = normal_share), true));
}
