// The tuning session: kernels get faster while a page uses the model.
// Input: an engine, a source of candidates, a budget.  Output: events, a summary, an engine with faster
// kernels.  A candidate is adopted only if it computes the default's results and is faster beyond the noise, first in
// a worker with its own memory, then in the engine.

import { asEngineError, EngineError } from '../engine/errors.js';
import { alone } from './loop/alone.js';
import { handle } from './loop/candidate.js';
import { confirm } from './exchange/confirm.js';
import { backendOf } from './backend/backend.js';
import { browserFamily, classify, MONTH } from './device/device.js';
import { sessionGain } from './exchange/gain.js';
import { openLatency } from './loop/latency.js';
import { openForecast } from './loop/forecast.js';
import { openLedger } from './records/ledger.js';
import { openLine } from './sources/line.js';
import { LATENCY, OBJECTIVES } from './loop/objective.js';
import { hear, makePace, shown } from './loop/pace.js';
import { restore } from './records/persist.js';
import { aboutKernels, bundleName, keep, recall } from './records/record.js';
import { openReports } from './records/reports.js';
import { MOST_BYTES } from './trial/specs.js';
import { startOf, summaryOf } from './loop/summary.js';
import { openSupply } from './loop/supply.js';
import { findTargets } from './loop/targets.js';
import { openTrials } from './trial/trials.js';

/** Trials between two saves of the record if nothing was adopted. */
const KEEP_EVERY = 8;
/** Host faults in a row that end a session. */
const MOST_FAULTS = 3;
/** Candidates that passed their trial and failed in the model, after which this device takes no more for the bundle. */
const MOST_CAUGHT = 3;
/** Estimated runs of the whole-model comparison at the end. */
const LAST_RUNS = 60;
/** Maximum share of `seconds` that is reserved for that comparison. */
const LAST_SHARE = 0.2;

/** @type {Tune.Tune} */
export async function tune(engine, options) {
  const { signal, source, objective = LATENCY, budget = 0.05, onEvent = () => {} } = options;
  if (!(budget > 0)) throw new EngineError('input', `budget must be above 0, found ${budget}`, 'Give a share of the time, such as 0.05; 1 is all of it', { budget });
  if (!OBJECTIVES.includes(objective)) throw new EngineError('input', `There is no objective ${objective}`, `Known are ${OBJECTIVES.join(', ')}`, { objective });
  const stop = new AbortController();
  const cancel = () => stop.abort(signal?.reason);
  if (signal?.aborted) cancel();
  signal?.addEventListener('abort', cancel);
  // -1: the engine was disposed, or its worker died.
  const deaf = hear(engine, (open) => open < 0 && stop.abort());
  /** @type {Tune.Story} */
  const story = { rounds: 0, spent: 0, latency: null, gain: null, changed: new Map(), won: new Map(), effects: new Map() };
  let summary = summaryOf(story);
  try {
    for (let again = false; !stop.signal.aborted; again = true) {
      const away = new AbortController();
      const ends = AbortSignal.any([stop.signal, away.signal]);
      const leave = () => away.abort();
      /** @type {(waited: boolean) => Promise<Tune.Summary>} */
      const begin = (waited) => session(engine, { ...options, objective, budget, onEvent, leave, signal: ends, story, anew: again || waited });
      summary = await alone(engine, ends, onEvent, begin).catch(unlessOver(ends)) ?? summary;
      if (!away.signal.aborted) break;
      // A page hidden for long gives its turn to another tab.
      await shown(stop.signal).then(() => onEvent({ type: 'resumed' }), unlessOver(stop.signal));
    }
  } catch (error) {
    throw asEngineError(error);
  } finally {
    deaf();
    source.close();
    signal?.removeEventListener('abort', cancel);
  }
  onEvent({ type: 'end', summary });
  return summary;
}

/** One session; `story` carries its results over to the next one, after another tab's turn. @type {Tune.Session} */
async function session(engine, { onEvent, leave, signal, story, budget, absence, ...options }) {
  const pace = makePace({ engine, budget, signal, onEvent, leave, absence, spent: story.spent });
  try {
    return await work(engine, pace, { ...options, onEvent, signal, story });
  } finally {
    pace.end();
  }
}

/** @type {Tune.WorkOn} */
async function work(engine, pace, { source, objective, onEvent, signal, story, anew, ...options }) {
  const { program, limits } = engine.parts;
  const { openSpecs, start, early } = await backendOf(engine);
  const specs = await openSpecs(engine);
  // The page may not have restored its winners; and another tab may have found more while this one waited.
  await pace.job(() => restore(engine, anew), true);
  const record = await recall(engine);
  if (record.caught >= MOST_CAUGHT && !options.check) {
    throw new EngineError('host', `${record.caught} candidates passed their trials and then failed in the model`,
      'Tuning is off for this bundle on this device; `forget` turns it on again', { caught: record.caught, limit: MOST_CAUGHT });
  }
  if (!record.about.length) record.about = await aboutKernels(engine);
  const ledger = openLedger(record, engine.info.digest, objective, isBelieved(engine, source));
  const sizes = program.plans.flatMap(({ steps }) => steps.map(({ spec }) => specs.bytesOf(spec)));
  const trials = openTrials({
    code: await specs.code(), slots: program.slots, scratchBytes: program.memory.scratch_bytes, patience: options.patience, start, early, powerPreference: limits.powerPreference,
    bytes: Math.max(...sizes.filter((bytes) => bytes <= MOST_BYTES), 0),
  });
  signal.addEventListener('abort', () => trials.close(), { once: true });
  pace.guard(trials);
  // Reports that are acknowledged after the end must not overwrite the record of a newer session.
  let over = false;
  const save = async () => {
    if (!over) await keep(engine, record);
  };
  const reports = openReports({ source, record, digest: engine.info.digest, on: options.report ?? false, save });
  /** @type {Tune.Tools} */
  const tools = {
    engine, objective, pace, signal, specs, ledger, trials, source, onEvent, device: '', targets: new Map(), changed: story.changed, won: story.won, compared: new Map(), inTurn: oneByOne(),
    forecast: openForecast({ ledger, objective, effects: story.effects, shareOf: (spec) => tools.targets.get(spec)?.share ?? 0 }),
  };
  const tell = (/** @type {number} */ spec) => reports.tell(ledger.offers.get(spec), ledger.findings(spec), record.bad[spec]) && ledger.told(spec);
  const line = openLine({ source, signal, onEvent, hello: () => ({ ...helloOf(tools), share: options.report ?? false, check: options.check ?? false }), welcomed: (welcome) => tools.inTurn(() => takeOffers(tools, reports, welcome)) });
  try {
    tools.device = options.device || await deviceClass(tools, line);
    tools.targets = await findTargets(engine, pace, specs, options.specs);
    if (tools.targets.size) await rounds(tools, line, story, { ...options, tell, save });
  } catch (error) {
    // Cancelled, or the engine was disposed: results so far are kept.
    if (!signal.aborted && codeOf(error) !== 'disposed') throw error;
  } finally {
    trials.close();
    story.spent = pace.spent;
    if (story.rounds) await save();
    ledger.untold().forEach(tell);
    await reports.farewell();
    over = true;
  }
  return summaryOf(story, tools);
}

/** Tries one candidate after the other until none is left or a limit is reached. @type {Tune.Rounds} */
async function rounds(tools, line, story, { seconds = Infinity, rounds: most = Infinity, check, tell, save }) {
  const { pace, ledger, targets, trials, signal, onEvent, changed, forecast } = tools;
  const [target] = targets.values();
  const latency = openLatency({ ...tools, target, story });
  let faults = 0;
  const reserve = () => (changed.size ? Math.min(LAST_SHARE * 1000 * seconds, LAST_RUNS * (story.latency ?? 0)) : 0);
  const dueToEnd = () => story.rounds >= most || pace.spent >= 1000 * seconds - reserve();

  const supply = openSupply({ line, forecast, pace, signal, isOver: dueToEnd });

  /** Kernels of which the source has no more, with the checksum of their space. @type {Map<number, string | undefined>} */
  const done = new Map();
  const checksumOf = (/** @type {number} */ spec) => ledger.offers.get(spec)?.checksum;

  /** Reports kernels of which no candidate is left.  Those that this session changed are reported later: confirm() may roll them back. */
  function tellDone() {
    for (const [spec, checksum] of done) {
      if (forecast.held(spec).length || changed.has(spec)) continue;
      // In another space there are others.
      if (checksum === checksumOf(spec)) tell(spec);
      done.delete(spec);
    }
  }

  /** A host fault is no verdict on the candidate; MOST_FAULTS in a row are unlikely to pass. @param {Tune.Sent} sent */
  async function attempt(sent) {
    const { spec, candidate } = sent.header;
    try {
      const found = await tools.inTurn(() => handle(tools, sent, story.rounds + 1));
      if (found && found.verdict !== 'refused') faults = 0;
      return found;
    } catch (error) {
      if (signal.aborted || codeOf(error) !== 'host' || ++faults >= MOST_FAULTS) throw error;
      onEvent({ type: 'fault', spec, candidate, why: String(error) });
      return null;
    }
  }

  await line.open();
  onEvent({ type: 'start', class: tools.device, kernels: startOf(tools) });
  if (!check) await latency.look(story.rounds);
  try {
    while (!dueToEnd()) {
      await pace.turn();
      tellDone();
      const sent = await supply.next();
      if (!sent) break;
      if ('done' in sent) {
        done.set(sent.done, checksumOf(sent.done));
        continue;
      }
      const following = [forecast.peek(), line.peek()].find((one) => one && !forecast.waits(one));
      if (following) trials.ahead({ module: following.module, tiles: following.header.tiles });
      const found = await attempt(sent);
      if (!found) continue;
      story.rounds++;
      if (found.swapped || !['same', 'slower'].includes(found.verdict) || story.rounds % KEEP_EVERY === 0) await save();
      if (check) continue;
      if (found.swapped) latency.changed();
      await latency.look(story.rounds, false);
    }
  } finally {
    line.close();
  }
  // A welcome may still be under way.
  await tools.inTurn(async () => {});
  tellDone();
  if (check) {
    // Only the compiler's own came, so there is no gain to measure.
    if (ledger.believed && ![...targets.keys()].some(ledger.inQuestion)) ledger.record.checked = tools.engine.info.digest;
    return save();
  }
  if (changed.size) await confirm(tools);
  const gain = await sessionGain(tools);
  story.gain = gain;
  if ('tuned' in gain && gain.plan === target.plan) latency.tell(story.rounds, gain.tuned);
  else if (story.rounds) await latency.look(story.rounds);
}

/** Runs pieces of work one after the other: a new welcome may take kernels out of use, but must not do so while a candidate is tried. @returns {Tune.Tools['inTurn']} */
function oneByOne() {
  /** @type {Promise<unknown>} */
  let last = Promise.resolve();
  return (work) => {
    const own = last.then(work);
    last = own.catch(() => {});
    return own;
  };
}

/** The hello of a first connection or a reconnection. @type {Tune.HelloOf} */
function helloOf({ engine: { info }, objective, ledger, targets, device, forecast }) {
  const specs = [...targets.keys()];
  return {
    protocol: 1, bundle: bundleName(info.url), digest: info.digest, device, browser: browserFamily(),
    variant: info.variant.name, features: info.adapter?.features ?? [], objective, specs, shares: [...targets.values()].map(({ share }) => Math.min(1, share)),
    // What is in hand need not be sent again.
    tried: Object.fromEntries(specs.map((spec) => [spec, [...ledger.done(spec), ...forecast.held(spec)]])),
  };
}

/**
 * Takes the kernels of a welcome.  Drops winners whose candidate numbers belong to another space; returns false if
 * there were such kernels: then the hello listed wrong numbers and must be sent again.
 * @type {Tune.TakeOffers}
 */
async function takeOffers({ engine, pace, ledger, changed }, reports, { kernels }) {
  const others = ledger.take(kernels);
  const gone = others.filter((spec) => ledger.winner(spec));
  if (gone.length) await pace.job(() => engine.swap(gone.map((spec) => ({ spec, module: null }))), true);
  for (const spec of gone) {
    ledger.use(spec);
    changed.delete(spec);
  }
  if (others.length) return false;
  reports.again(ledger.offers);
  return true;
}

/** The class of this device; probed at most once a month. @type {Tune.FindClass} */
async function deviceClass({ engine, pace, trials, ledger: { record } }, line) {
  const { info } = engine;
  const age = Date.now() - record.deviceAt;
  if (record.device && age >= 0 && age < MONTH) return record.device;
  const [table, { factsOf, PROBES }] = await Promise.all([line.classes(), backendOf(engine)]);
  let largest = 0;
  for (let probe = 0; probe < PROBES; probe++) {
    await pace.turn();
    const from = performance.now();
    largest = Math.max(largest, await trials.l1());
    pace.spend(performance.now() - from);
  }
  const { name } = info.variant;
  const found = classify(table, factsOf(info, largest), name);
  if (found) return Object.assign(record, { device: found, deviceAt: Date.now() }).device;
  throw new EngineError('unsupported-host', `No device class runs the code variant '${name}'`, 'Load the bundle without the option `variant`, or name a class: option `device`');
}

/**
 * Whether the source may say that the compiler's own candidate is another kernel than the bundle's, which then may go: only who
 * can change the bundle itself, that is its own origin, and if the bundle must be signed, who signs candidates too.
 * @type {Tune.IsBelieved}
 */
const isBelieved = ({ info, parts }, { origin, signed }) => signed || (origin === new URL(info.url).origin && parts.limits.key === undefined);

/** Ignores errors after an abort. @param {AbortSignal} signal */
const unlessOver = (signal) => (/** @type {unknown} */ error) => {
  if (!signal.aborted) throw error;
};

/** @param {unknown} error */
const codeOf = (error) => error instanceof EngineError && error.code;
