// The page of co-running: the frontier of each policy, and the timeline of a trace.
// Input: files that the server was given (/api/corun), and files that are opened here, which stay here.  Output: charts, a table of
// all points, or instructions if there is no data.

import { MEASURES, SETTING, pointsOf, read } from './corun_results.js';
import { countText, element, make } from './elements.js';
import { showFrontier } from './frontier_view.js';
import { showTimeline } from './timeline_view.js';

/**
 * @typedef {import('./corun_results.js').Point} Point
 * @typedef {import('./corun_results.js').Measure} Measure
 */

const RESULTS = 'api/corun';
const ALL = 'all';
/** How values of a filter are said. @type {Record<string, (value: any) => string>} */
const WORDS = {
  pair: String,
  sms: (count) => (count === null ? 'all' : String(count)),
  kernels: (kind) => kind || 'not said',
  clients: (count) => (count === null ? 'not said' : String(count)),
  l2_persistence: (kept) => (kept ? 'yes' : 'no'),
};
const FILTERS = [...SETTING, 'bound', 'measure'];
const HEAD = ['Policy', 'Bound', 'p50', 'p99', 'p99.9', 'Normal work', 'Total over sequential', 'Requests', 'Runs'];

/** @type {import('./corun_results.js').Results[]} */
const found = [];

async function start() {
  fill('filter-measure', Object.entries(MEASURES));
  try {
    for (const { name, url } of await answer(RESULTS).then((response) => response.json())) {
      add(name, await answer(url).then((response) => response.text()));
    }
  } catch (error) {
    return state('error', `The results cannot be shown: ${words(error)}`);
  }
  show();
}

/** @param {string} url */
async function answer(url) {
  const response = await fetch(url, { cache: 'no-cache' });
  if (!response.ok) throw new Error(`the server answers ${response.status}`);
  return response;
}

/** @param {string} name @param {string} text */
function add(name, text) {
  try {
    found.push(read(name, text));
  } catch (error) {
    element('corun-problem').textContent = words(error);
  }
}

/** @param {unknown} error */
const words = (error) => (error instanceof Error ? error.message : String(error));

/** @param {string} name @param {string} text */
function state(name, text) {
  element('corun').dataset.state = name;
  element('corun-text').textContent = text;
}

/** Everything, from `found`. */
function show() {
  const runs = found.flatMap((one) => one.runs);
  const traces = found.filter(({ spans }) => spans.length);
  const refused = found.reduce((sum, one) => sum + one.refused, 0);
  element('corun-empty').hidden = runs.length + traces.length > 0;
  element('frontier-part').hidden = runs.length === 0;
  element('timeline-part').hidden = traces.length === 0;
  if (runs.length + traces.length === 0) showEmpty(refused);
  else state('ready', [countText(runs.length, 'run'), ...(refused ? [`${refused} refused`] : []), ...(traces.length ? [countText(traces.length, 'trace')] : [])].join(', '));
  if (runs.length) showPoints(pointsOf(runs));
  if (traces.length) {
    fill('trace', traces.map(({ name }, at) => [String(at), name]));
    showTimeline(traces[Number(element('trace').value)].spans);
  }
}

/** @param {number} refused */
function showEmpty(refused) {
  const code = (/** @type {string} */ textContent) => make('code', { textContent });
  state('empty', refused ? `${countText(refused, 'run')} refused, no results` : '');
  element('corun-empty').replaceChildren(
    'No results yet. Measure a pair: ', code('tilewright corun CRITICAL NORMAL --max-slowdown 1.05 --json >> runs.json'),
    ', once for each bound and policy; for a timeline: ', code('tilewright corun CRITICAL NORMAL --trace trace.json'), '. Then open the files here, or serve them: ', code('tilewright serve --corun runs.json --corun trace.json'), '.');
}

/** @param {Point[]} points */
function showPoints(points) {
  let shown = points;
  for (const key of SETTING) {
    const values = [...new Map(shown.map((point) => [JSON.stringify(point[key]), WORDS[key](point[key])]))];
    const chosen = fill(`filter-${key}`, values.sort(([, a], [, b]) => a.localeCompare(b, 'en', { numeric: true })), key === 'kernels' || key === 'clients' || key === 'l2_persistence');
    shown = shown.filter((point) => JSON.stringify(point[key]) === chosen);
  }
  const bounds = [...new Set(shown.map(({ max_slowdown }) => max_slowdown).filter((one) => one !== null))].sort((a, b) => a - b);
  const chosen = fill('filter-bound', [[ALL, ALL], ...bounds.map((one) => /** @type {[string, string]} */ ([String(one), `${one}×`]))]);
  const bound = chosen === ALL ? null : Number(chosen);
  // a policy that takes no bound is compared with those under each
  shown = shown.filter(({ max_slowdown }) => bound === null || max_slowdown === null || max_slowdown === bound);
  const measure = /** @type {Measure} */ (element('filter-measure').value);
  const policies = [...new Set(points.map(({ policy }) => policy))];
  showFrontier(shown, { measure, words: MEASURES[measure], bound, policies });
  showTable(shown.toSorted((a, b) => a.policy.localeCompare(b.policy) || (a.max_slowdown ?? 0) - (b.max_slowdown ?? 0)), measure);
}

/** @param {Point[]} points @param {Measure} measure its table says the same quantiles of what it counts */
function showTable(points, measure) {
  const [p50, p99, p999] = /** @type {Measure[]} */ (measure.startsWith('service') ? ['service_p50', 'service_p99', 'service_p999'] : ['p50', 'p99', 'p999']);
  element('points-head').replaceChildren(make('tr', {}, ...HEAD.map((textContent) => make('th', { scope: 'col', textContent }))));
  element('points').replaceChildren(...points.map((point) => {
    const { policy, max_slowdown, normal_share, total_over_sequential, n, runs } = point;
    const cells = [
      max_slowdown === null ? '' : `${max_slowdown}×`, ...[p50, p99, p999].map((key) => `${point[key].toFixed(3)}×`), `${(100 * normal_share).toFixed(1)} %`,
      total_over_sequential === null ? '' : `${total_over_sequential.toFixed(2)}×`, n.toLocaleString('en'), String(runs),
    ];
    const row = make('tr', {}, make('th', { scope: 'row', textContent: policy }), ...cells.map((textContent) => make('td', { textContent })));
    Object.assign(row.dataset, { policy, bound: max_slowdown ?? '' });
    return row;
  }));
}

/**
 * Keeps what is chosen where it is still among the options.
 * @param {string} id
 * @param {[string, string][]} options values and their words
 * @param {boolean} [optional] nothing is asked where there is no choice
 * @returns {string} the value that is chosen
 */
function fill(id, options, optional = false) {
  const select = element(id);
  const before = select.value;
  select.replaceChildren(...options.map(([value, textContent]) => make('option', { value, textContent })));
  if (options.some(([value]) => value === before)) select.value = before;
  select.closest('label').hidden = optional && options.length < 2;
  return select.value;
}

for (const name of FILTERS) element(`filter-${name}`).addEventListener('input', show);
element('trace').addEventListener('input', show);
element('filters').addEventListener('submit', (/** @type {Event} */ event) => event.preventDefault());
element('file').addEventListener('change', async () => {
  element('corun-problem').textContent = '';
  for (const file of [...element('file').files]) add(file.name, await file.text());
  element('file').value = '';
  show();
});
let width = innerWidth;
addEventListener('resize', () => {
  if (width !== innerWidth && element('corun').dataset.state === 'ready') show();
  width = innerWidth;
});
start();
