// The page of device classes: a table of the winning candidate per kernel and class.
// Input: the server's /api/standing.  Output: a table with filters, or instructions if there is no data.
// The server's store counts the votes; the page only shows them.

import { countText, element, make } from './elements.js';

/**
 * A kernel's standing on a class.  `default`: null until the votes agree; `ranked`: best first; `current`: the candidates
 * are of the server's own compiler version; `voices`: number of reports.
 * @typedef {{candidate: number, ratio: number, low: number, high: number, reporters: number}} Ranked
 * @typedef {{kernel: string, kind: string, shape: string, device: string, browser: string, compiler: string, current: boolean,
 *   default: number | null, shadow: number | null, ranked: Ranked[], voices: number, day: string}} Standing
 * @typedef {Standing & {stage: 'default' | 'shadow' | 'candidate', winner: Ranked}} Entry
 */

const STANDING = 'api/standing';
/** The bundle's own kernel, which needs no votes. */
const BUILT = { candidate: 0, ratio: 1, low: 1, high: 1, reporters: 0 };
const FILTERS = ['filter-kernel', 'filter-class', 'filter-browser', 'filter-stage'];

/** @type {Entry[]} */
let entries = [];

async function start() {
  try {
    /** @type {Standing[]} */
    const found = [];
    for (let next = /** @type {string | undefined} */ (STANDING); next; ) {
      const response = await fetch(next, { cache: 'no-cache' });
      if (response.status === 404) return showEmpty(false);
      const part = await response.json();
      if (!response.ok) throw new Error(`${part.error.message}. ${part.error.hint}`);
      found.push(...part);
      const after = response.headers.get('link')?.match(/<(.*)>; rel="next"/)?.[1];
      next = after && STANDING + after;
    }
    if (found.length === 0) return showEmpty(true);
    entries = newest(found).map(entryOf);
    fill('filter-class', entries.map(({ device }) => device));
    fill('filter-browser', entries.map(({ browser }) => browser));
    element('filters').hidden = false;
    show();
  } catch (error) {
    state('error', `The kernel database cannot be shown: ${error instanceof Error ? error.message : error}`);
  }
}

/**
 * One standing per kernel, class and browser: candidate numbers of different compiler versions cannot be compared.
 * @param {Standing[]} found
 */
function newest(found) {
  const groups = Map.groupBy(found, ({ kernel, device, browser }) => `${kernel} ${device} ${browser}`);
  return [...groups.values()].map((same) => same.sort((a, b) => Number(b.current) - Number(a.current)
    || b.compiler.localeCompare(a.compiler, 'en', { numeric: true }) || b.day.localeCompare(a.day))[0]);
}

/** Shows the default, else the shadow (being confirmed), else the leading candidate. @param {Standing} standing @returns {Entry} */
function entryOf(standing) {
  const { default: agreed, shadow, ranked } = standing;
  const stage = agreed !== null ? 'default' : shadow !== null ? 'shadow' : 'candidate';
  const candidate = agreed ?? shadow ?? ranked[0]?.candidate ?? BUILT.candidate;
  return { ...standing, stage, winner: ranked.find((one) => one.candidate === candidate) ?? { ...BUILT, candidate } };
}

/**
 * @param {string} name
 * @param {string} text
 */
function state(name, text) {
  element('classes').dataset.state = name;
  element('classes-text').textContent = text;
}

/** @param {boolean} store whether the server has a kernel database */
function showEmpty(store) {
  state('empty', '');
  const code = (/** @type {string} */ textContent) => make('code', { textContent });
  const box = element('classes-empty');
  box.hidden = false;
  if (store) box.append('No device has reported yet. Open the ', make('a', { href: './', textContent: 'demo page' }), ' and tune with “Share results”, or run ', code('tilewright tune BUNDLE --store URL'), ' with the address of this database.');
  else box.append('This server has no kernel database. Start it with one: ', code('tilewright serve BUNDLE --store sqlite:///kernels.db'));
}

/**
 * @param {string} id
 * @param {string[]} names
 */
function fill(id, names) {
  element(id).append(...[...new Set(names)].sort().map((name) => make('option', { textContent: name })));
}

/** @param {Entry} entry */
function wanted({ kind, shape, device, browser, stage }) {
  const [kernel, ...exact] = FILTERS.map((id) => element(id).value.trim());
  const words = kernel.toLowerCase().split(/\s+/);
  return words.every((/** @type {string} */ word) => `${kind} ${shape}`.toLowerCase().includes(word))
    && [device, browser, stage].every((found, at) => !exact[at] || found === exact[at]);
}

/** @template T @param {T[]} items @param {(item: T) => string} name @returns {Map<string, T[]>} in the order of the names */
function grouped(items, name) {
  const groups = Map.groupBy(items, name);
  return new Map([...groups].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true })));
}

function show() {
  const shown = entries.filter(wanted);
  const columns = grouped(shown, ({ device, browser }) => `${device} ${browser}`);
  const rows = grouped(shown, ({ kind, shape, kernel }) => `${kind} ${shape} ${kernel}`);
  const votes = shown.reduce((sum, { voices }) => sum + voices, 0);
  state('ready', `${countText(rows.size, 'kernel')} on ${countText(columns.size, 'kind of device', 'kinds of devices')}, ${countText(votes, 'report')}`);
  element('classes-scroll').hidden = false;
  element('classes-head').replaceChildren(make('tr', {}, make('th', { scope: 'col', textContent: 'Kernel' }), ...[...columns.values()].map(([{ device, browser }]) => {
    const head = make('th', { scope: 'col' }, make('span', { textContent: device }), make('span', { className: 'quiet', textContent: browser }));
    Object.assign(head.dataset, { class: device, browser });
    return head;
  })));
  element('classes-rows').replaceChildren(...[...rows.values()].map((row) => rowOf(row, [...columns.keys()])));
}

/**
 * @param {Entry[]} row
 * @param {string[]} columns
 */
function rowOf(row, columns) {
  const [{ kind, shape, kernel }] = row;
  const made = make('tr', {}, make('th', { scope: 'row', title: kernel }, make('span', { textContent: kind }), make('span', { className: 'quiet', textContent: shape })),
    ...columns.map((column) => cellOf(row.find(({ device, browser }) => `${device} ${browser}` === column))));
  made.dataset.kernel = kernel;
  return made;
}

/** @param {Entry | undefined} entry */
function cellOf(entry) {
  if (!entry) return make('td', {});
  const { stage, winner: { candidate, ratio, low, high, reporters }, voices, day, compiler } = entry;
  const cell = make('td', { title: `${low.toFixed(2)}× to ${high.toFixed(2)}×, ${day}, ${compiler}` },
    make('span', { textContent: candidate === 0 ? 'as built' : `#${candidate} · ${ratio.toFixed(2)}×` }),
    make('span', { className: 'quiet', textContent: `${stage} · ${reporters} of ${voices}` }));
  Object.assign(cell.dataset, { stage, candidate });
  return cell;
}

for (const id of FILTERS) element(id).addEventListener('input', show);
element('filters').addEventListener('submit', (/** @type {Event} */ event) => event.preventDefault());
start();
