// The active part of a tuning session: opens its tools, tries candidates, checks and stores the results.  No other session tunes the bundle
// meanwhile; tuner.js decides when this part begins and ends.
// Input: an engine, options, results so far.  Output: events, more results, an engine with faster kernels; data about its kernels for the
// `start` event and the summary.
// Times and gains of kernels come from their trials: warm, alternating, on one thread.  The latency of the whole model comes from the page's
// own runs if there were enough, else from extra runs.

import { EngineError } from '../../engine/errors.js';
import { backendOf } from '../backend/backend.js';
import { browserFamily, classify, MONTH } from '../device/device_class.js';
import { confirm, exchanges, NONE, sessionGain, unknown } from '../exchange/gain.js';
import { guardOf } from '../exchange/guard.js';
import { settled, usual, warmUp } from '../exchange/runs.js';
import { aboutKernels, bundleName, keep, recall } from '../records/device_record.js';
import { openLedger } from '../records/ledger.js';
import { restore } from '../records/persist.js';
import { openReports } from '../records/reports.js';
import { openConnection, openQueue } from '../sources/connection.js';
import { MOST_BYTES } from '../trial/specs.js';
import { openTrials } from '../trial/trials.js';
import { handle } from './candidate.js';
import { openForecast } from './forecast.js';
import { findTargets } from './hot_kernels.js';

/** Trials between two saves of the record if nothing was adopted. */
const KEEP_EVERY = 8;
/** Host faults in a row that end a session. */
const MOST_FAULTS = 3;
/** The number of candidates that passed their trial and then failed in the model, after which this device tries no more for the bundle. */
const MOST_CAUGHT = 3;
/** Estimated runs of the whole-model comparison at the end. */
const LAST_RUNS = 60;
/** Maximum share of `seconds` that is reserved for that comparison. */
const LAST_SHARE = 0.2;

/** One period in which this session alone tunes the bundle, until it ends or leaves the bundle to another tab. */
export class ActiveSession {
  /** @type {Tune.Tools} */
  #tools;

  /** @type {Tune.ActiveSessionOptions} */
  #options;

  /** Carries results over to the next active session. @type {Tune.Story} */
  #story;

  /** @type {Tune.Connection} */
  #line;

  /** @type {Tune.Reports} */
  #reports;

  /** The device of the engine when the active session began; the record belongs to it. @type {T.Device} */
  #began;

  /** Reports that are acknowledged after the end must not overwrite the record of a newer session. */
  #over = false;

  /** Kernels for which the source has no more candidates, with the checksum of their space. @type {Map<number, string | undefined>} */
  #done = new Map();

  /** Host faults in a row. */
  #faults = 0;

  /** Restores winners and starts the trial worker. @param {Tune.ActiveSessionParts} parts @param {boolean} anew */
  static async open(parts, anew) {
    const { engine, options, pace, signal } = parts;
    const { parts: { program, limits }, info: { device, digest } } = engine;
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
    const ledger = openLedger(record, digest, options.objective, isBelieved(engine, options.source));
    const sizes = program.plans.flatMap(({ steps }) => steps.map(({ spec }) => specs.bytesOf(spec)));
    const trials = openTrials({
      code: await specs.code(), slots: program.slots, scratchBytes: program.memory.scratch_bytes, patience: options.patience, start, early, powerPreference: limits.powerPreference, silent: guardOf(engine).listen(),
      bytes: Math.max(...sizes.filter((bytes) => bytes <= MOST_BYTES), 0),
    });
    signal.addEventListener('abort', () => trials.close(), { once: true });
    pace.guard(trials);
    return new ActiveSession(parts, { specs, ledger, trials }, device);
  }

  /** @param {Tune.ActiveSessionParts} parts @param {Pick<Tune.Tools, 'specs' | 'ledger' | 'trials'>} opened @param {T.Device} began */
  constructor({ engine, options, story, pace, signal, enter }, opened, began) {
    const { source, objective, onEvent, report = false, check = false } = options;
    const { ledger } = opened;
    this.#options = options;
    this.#story = story;
    this.#began = began;
    this.#reports = openReports({ source, record: ledger.record, digest: engine.info.digest, on: report, save: () => this.#save() });
    this.#tools = {
      ...opened, engine, objective, pace, signal, source, onEvent, enter, device: '', targets: new Map(), changed: story.changed, won: story.won, compared: new Map(), inTurn: oneByOne(),
      forecast: openForecast({ ledger, objective, effects: story.effects, shareOf: (spec) => this.#tools.targets.get(spec)?.share ?? 0 }),
    };
    this.#line = openConnection({
      source, signal, onEvent, hello: () => ({ ...this.#hello(), share: report, check }), welcomed: (welcome) => this.#tools.inTurn(() => this.#takeOffers(welcome)),
    });
  }

  /** Resolves with the summary so far: results are kept even if it was cancelled, or the engine disposed. */
  async run() {
    const tools = this.#tools;
    try {
      tools.device = this.#options.device || await this.#deviceClass();
      tools.targets = await findTargets(tools.engine, tools.pace, tools.specs, this.#options.specs);
      if (tools.targets.size) await this.#rounds();
    } catch (error) {
      if (!tools.signal.aborted && codeOf(error) !== 'disposed') throw error;
    } finally {
      await this.#close();
    }
    return summaryOf(this.#story, tools);
  }

  async #close() {
    const { enter, trials, pace, ledger } = this.#tools;
    enter('closing');
    trials.close();
    this.#story.spent = pace.spent;
    if (this.#story.rounds) await this.#save();
    for (const spec of ledger.untold()) this.#tell(spec);
    await this.#reports.farewell();
    this.#over = true;
  }

  async #save() {
    const { engine, ledger: { record } } = this.#tools;
    if (!this.#over && engine.info.device === this.#began) await keep(engine, record);
  }

  /** Reports the measured ratios of a kernel. @param {number} spec */
  #tell(spec) {
    const { ledger } = this.#tools;
    if (this.#reports.tell(ledger.offers.get(spec), ledger.findings(spec), ledger.record.bad[spec])) ledger.told(spec);
  }

  /** @param {number} spec */
  #checksumOf(spec) {
    return this.#tools.ledger.offers.get(spec)?.checksum;
  }

  /** Reports kernels of which no candidate is left.  Those that this session changed are reported later: confirm() may roll them back. */
  #tellDone() {
    const { forecast, changed } = this.#tools;
    for (const [spec, checksum] of this.#done) {
      if (forecast.held(spec).length || changed.has(spec)) continue;
      // Another space has other candidates.
      if (checksum === this.#checksumOf(spec)) this.#tell(spec);
      this.#done.delete(spec);
    }
  }

  /** Whether no further candidate may be tried. */
  #isDue() {
    const { pace, changed } = this.#tools;
    const { seconds = Infinity, rounds = Infinity } = this.#options;
    const reserve = changed.size ? Math.min(LAST_SHARE * 1000 * seconds, LAST_RUNS * (this.#story.latency ?? 0)) : 0;
    return this.#story.rounds >= rounds || pace.spent >= 1000 * seconds - reserve;
  }

  /** Tries one candidate after the other until none is left or a limit is reached; then compares the whole model and stores the results. */
  async #rounds() {
    const tools = this.#tools;
    const { enter, onEvent, targets } = tools;
    const [target] = targets.values();
    const latency = openLatency({ ...tools, target, story: this.#story });
    const supply = openQueue({ ...tools, line: this.#line, isOver: () => this.#isDue() });
    await this.#line.open();
    onEvent({ type: 'start', class: tools.device, kernels: startOf(tools) });
    if (!this.#options.check) {
      enter('timing');
      await latency.look(this.#story.rounds);
    }
    try {
      let more = true;
      while (more) more = await this.#round(supply, latency);
    } finally {
      this.#line.close();
    }
    // A welcome may still be under way.
    await tools.inTurn(async () => {});
    this.#tellDone();
    await (this.#options.check ? this.#settleCheck() : this.#settle(latency, target));
  }

  /** Chooses a candidate and tries it; false if there is none, or a limit is reached. @type {Tune.NextRound} */
  async #round(supply, latency) {
    const { enter, pace, forecast, trials } = this.#tools;
    enter('choosing');
    if (this.#isDue()) return false;
    await pace.turn();
    this.#tellDone();
    const sent = await supply.next();
    if (!sent) return false;
    if ('done' in sent) {
      this.#done.set(sent.done, this.#checksumOf(sent.done));
      return true;
    }
    const following = [forecast.peek(), this.#line.peek()].find((one) => one && !forecast.waits(one));
    if (following) trials.ahead({ module: following.module, tiles: following.header.tiles });
    enter('trying');
    const found = await this.#attempt(sent);
    if (!found) return true;
    const round = ++this.#story.rounds;
    if (found.swapped || !['same', 'slower'].includes(found.verdict) || round % KEEP_EVERY === 0) await this.#save();
    if (this.#options.check) return true;
    if (found.swapped) latency.changed();
    enter('timing');
    await latency.look(round, false);
    return true;
  }

  /** Tries a candidate.  A fault of the host gives no verdict on it; after MOST_FAULTS faults in a row the session ends. @type {Tune.TryNoted} */
  async #attempt(sent) {
    const { inTurn, signal, onEvent } = this.#tools;
    const { spec, candidate } = sent.header;
    try {
      const found = await inTurn(() => this.#tried(sent));
      if (found && found.verdict !== 'refused') this.#faults = 0;
      return found;
    } catch (error) {
      if (signal.aborted || codeOf(error) !== 'host' || ++this.#faults >= MOST_FAULTS) throw error;
      onEvent({ type: 'fault', spec, candidate, why: String(error) });
      return null;
    }
  }

  /** Tries a candidate.  One that hangs may have taken the GPU: it is noted before the engine is ended, which ends the session. @type {Tune.TryNoted} */
  async #tried(sent) {
    const { engine, onEvent } = this.#tools;
    const found = await handle(this.#tools, sent, this.#story.rounds + 1);
    if (found?.verdict !== 'hung') return found;
    await this.#save();
    const { spec, candidate } = sent.header;
    if (await guardOf(engine).outlive()) onEvent({ type: 'fault', spec, candidate, why: engine.info.lost.at(-1) ?? '' });
    return found;
  }

  /** True if only the compiler's own candidates were adopted, so that there is no gain to measure. */
  async #settleCheck() {
    const { engine, ledger, targets } = this.#tools;
    if (ledger.believed && ![...targets.keys()].some(ledger.inQuestion)) ledger.record.checked = engine.info.digest;
    await this.#save();
  }

  /** Compares the whole model with and without what changed. @type {Tune.Settle} */
  async #settle(latency, target) {
    const { enter, changed } = this.#tools;
    const story = this.#story;
    enter('confirming');
    if (changed.size) await confirm(this.#tools);
    const gain = await sessionGain(this.#tools);
    story.gain = gain;
    if ('tuned' in gain && gain.plan === target.plan) latency.tell(story.rounds, gain.tuned);
    else if (story.rounds) {
      enter('timing');
      await latency.look(story.rounds);
    }
  }

  /** The hello of a first connection or a reconnection. @returns {Omit<Tune.Hello, 'share' | 'check'>} */
  #hello() {
    const { engine: { info }, objective, ledger, targets, device, forecast } = this.#tools;
    const specs = [...targets.keys()];
    return {
      protocol: 1, bundle: bundleName(info.url), digest: info.digest, device, browser: browserFamily(),
      variant: info.variant.name, features: info.adapter?.features ?? [], objective, specs, shares: [...targets.values()].map(({ share }) => Math.min(1, share)),
      // Candidates that have arrived need not be sent again.
      tried: Object.fromEntries(specs.map((spec) => [spec, [...ledger.done(spec), ...forecast.held(spec)]])),
    };
  }

  /**
   * Takes the kernels of a welcome.  Drops winners whose candidate numbers belong to another space; returns false if
   * there were such kernels: then the hello listed wrong numbers and must be sent again.
   * @type {Tune.TakeOffers}
   */
  async #takeOffers({ kernels }) {
    const { engine, pace, ledger, changed } = this.#tools;
    const others = ledger.take(kernels);
    const gone = others.filter((spec) => ledger.winner(spec));
    if (gone.length) await pace.job(() => engine.swap(gone.map((spec) => ({ spec, module: null }))), true);
    for (const spec of gone) {
      ledger.use(spec);
      changed.delete(spec);
    }
    if (others.length) return false;
    this.#reports.again(ledger.offers);
    return true;
  }

  /** The class of this device; probed at most once a month. @returns {Promise<string>} */
  async #deviceClass() {
    const { engine, pace, trials, ledger: { record } } = this.#tools;
    const { info } = engine;
    const age = Date.now() - record.deviceAt;
    if (record.device && age >= 0 && age < MONTH) return record.device;
    const [table, { factsOf, PROBES }] = await Promise.all([this.#line.classes(), backendOf(engine)]);
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
}

/** Runs pieces of work one after the other.  A new welcome may remove winners, and must not do so while a candidate is tried. @returns {Tune.Tools['inTurn']} */
function oneByOne() {
  /** @type {Promise<unknown>} */
  let last = Promise.resolve();
  return (work) => {
    const own = last.then(work);
    last = own.catch(() => {});
    return own;
  };
}

/**
 * Whether the source is believed if it says that the bundle's kernel is not the compiler's own, so that the bundle's kernel may be
 * replaced.  Only a source that could change the bundle itself is believed: one of the bundle's own origin, which, if the bundle must be
 * signed, also signs candidates.
 * @type {Tune.IsBelieved}
 */
const isBelieved = ({ info, parts }, { origin, signed }) => signed || (origin === new URL(info.url).origin && parts.limits.key === undefined);

/** @param {unknown} error */
const codeOf = (error) => error instanceof EngineError && error.code;

/** @type {Tune.StartOf} */
export const startOf = ({ targets, ledger }) => [...targets.values()].map(({ spec, plan, node, part, share, kernel, flops }) => {
  const { kind = kernel, shape = '', fixed = '', default: own = 0 } = ledger.offers.get(spec) ?? {};
  const { candidate = 0, schedule = '', moved = false } = ledger.winner(spec) ?? {};
  const current = ledger.winner(spec) ? { candidate, schedule, gain: gainOf(ledger, spec), moved } : null;
  return { spec, plan, kind, shape, fixed, node, part, share, flops, default: own, current };
});

/** Null if it was never measured. @type {(ledger: Tune.Ledger, spec: number) => number | null} */
const gainOf = (ledger, spec) => (ledger.unknown(spec) ? null : ledger.gain(spec));

/** Without tools: the summary of a session that ended while it started. @type {Tune.SummaryOf} */
export function summaryOf({ rounds, spent, latency, gain }, tools) {
  const at = (/** @type {number | null} */ candidate, /** @type {number} */ milliseconds, /** @type {number} */ flops, schedule = '') => (
    { candidate, schedule, milliseconds, gflops: flops / milliseconds / 1e6 });
  const kernels = [...tools?.targets.values() ?? []].map(({ spec, kernel, node, own, flops }) => {
    const { ledger } = /** @type {Tune.Tools} */ (tools);
    const offer = ledger.offers.get(spec);
    const gain = gainOf(ledger, spec);
    return {
      spec, kind: offer?.kind ?? kernel, shape: offer?.shape ?? '', fixed: offer?.fixed ?? '', node, gain, tried: ledger.tried(spec).length,
      default: at(ledger.own(spec), own, flops), current: at(ledger.current(spec), own / (gain ?? NaN), flops, ledger.winner(spec)?.schedule),
    };
  });
  const told = gain ?? (tools && exchanges(tools).length ? unknown('the session ended before the measurement') : NONE);
  return { rounds, seconds: spent / 1000, class: tools?.device ?? '', kernels, latency, gain: told };
}

/** The number of page runs that is enough. */
const RUNS = 8;
/** The least milliseconds of extra runs. */
const LOOK = 60;
/** The most of the tuning time, as a share, for extra runs. */
const SHARE = 0.1;
/** Milliseconds of a plan above which even the first latency must keep to that share. */
const ENDLESS = 1000;
/** Extra runs that a latency is expected to take. */
const FEWEST = 4;

/** @type {Tune.OpenLatency} */
function openLatency({ engine, pace, target: { plan, whole }, story, onEvent }) {
  const { dims: bucket } = engine.parts.manifest.plans[plan];
  /** Milliseconds spent on extra runs. */
  let looked = 0;
  /** True if the latest latency is that of the kernels in use. */
  let known = false;

  const tell = (/** @type {number} */ round, /** @type {number} */ milliseconds) => {
    story.latency = milliseconds;
    onEvent({ type: 'latency', round, plan, milliseconds });
  };

  return {
    tell,

    /** Called when other kernels are in use: earlier runs no longer count. */
    changed() {
      known = false;
      pace.forgetRuns();
    },

    async look(round, due = true) {
      if (known && !due) return;
      let times = pace.recent(plan);
      if (times.length < RUNS || !settled(times)) {
        const first = story.latency === null;
        const cost = Math.max(LOOK, FEWEST * (story.latency ?? whole));
        if ((!due || (first && whole > ENDLESS)) && looked + cost > SHARE * pace.spent) return;
        const from = pace.spent;
        times = await warmUp(engine, pace, { plan, bucket }, first ? undefined : LOOK);
        looked += pace.spent - from;
      }
      pace.forgetRuns();
      known = true;
      if (times.length) tell(round, usual(times));
    },
  };
}
