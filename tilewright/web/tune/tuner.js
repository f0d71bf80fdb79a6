// The tuning loop: a page's kernels get better while it works.
// Input: an engine, a source of candidates, a budget.  Output: events, a summary, an engine with faster
// kernels.  A candidate must give the default's results and be faster beyond the noise, in a worker with
// memory of its own, and then in the engine; or else the kernel of before stays.

import { EngineError } from '../engine/errors.js';
import { sha256 } from '../engine/files.js';
import { adopt } from './adopt.js';
import { browserFamily, classify, factsOf } from './device.js';
import { makePace, sleep, unless } from './pace.js';
import { aboutKernels, bundleName, changeOf, keep, recall, restore } from './persist.js';
import { clamped, openReports } from './reports.js';
import { MOST_BYTES, openSpecs } from './specs.js';
import { median } from './statistics.js';
import { openTrials } from './trials.js';

/** A candidate is adopted if the lower end of its ratio's interval is above this. */
const MARGIN = 1.01;
/** Kernels of less than this share of the time are left alone. */
const LEAST_SHARE = 0.002;
/** Profiles of each plan, and milliseconds after which one is enough.  Each is a job of its own, so that runs need not wait long. */
const PROFILES = 3;
const LONG = 60;
/** Operations or bytes of a millisecond, for steps that are too short for the clock. */
const GUESS = 1e7;
/** Milliseconds before a lost source is opened again: doubled each time, up to the last. */
const [BACK_OFF, MOST_BACK_OFF] = [500, 60_000];
/** Attempts in a row before a source is given up. */
const ATTEMPTS = 12;
/** Trials after which what is known is kept, even if nothing was won. */
const KEEP_EVERY = 8;
/** Runs by which latency is measured, and the share of tuning time that they may take. */
const LATENCY_RUNS = 5;
const LATENCY_SHARE = 0.1;
/** Nothing in these verdicts may be tried again. */
const BAD = ['wrong', 'trapped', 'hung'];
/** The compiler's own candidate, and a number for a bundle's kernel that is none of its space. */
const [COMPILERS, NONE] = [0, -1];
/** Candidates of a kernel that wait for the compiler's own. */
const MOST_HELD = 8;

/** @type {Tune.Tune} */
export async function tune(engine, options) {
  const { signal, onEvent = () => {} } = options;
  const stop = new AbortController();
  const cancel = () => stop.abort(signal?.reason);
  if (signal?.aborted) cancel();
  signal?.addEventListener('abort', cancel);
  const pace = makePace({ engine, budget: options.budget ?? 0.05, stop, onEvent });
  try {
    return await alone(engine, stop.signal, onEvent, () => session(engine, options, pace, stop.signal, onEvent));
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    // It had hardly begun.
    const summary = { rounds: 0, seconds: 0, class: '', kernels: [], before: null, after: null };
    onEvent({ type: 'end', summary });
    return summary;
  } finally {
    pace.end();
    options.source.close();
    signal?.removeEventListener('abort', cancel);
  }
}

/** One tab tunes a bundle; the others wait, and begin with what it found. @type {Tune.Alone} */
async function alone(engine, signal, onEvent, work) {
  const name = `tilewright-tune-${bundleName(engine.info.url)}`;
  if (!navigator.locks) return work();
  const first = await navigator.locks.request(name, { ifAvailable: true }, async (lock) => lock && { summary: await work() });
  if (first) return first.summary;
  onEvent({ type: 'paused', why: 'another tab' });
  return navigator.locks.request(name, { signal }, async () => {
    onEvent({ type: 'resumed' });
    await restore(engine, true);
    return work();
  });
}

/** @type {Tune.Session} */
async function session(engine, options, pace, signal, onEvent) {
  const { source, seconds = Infinity, rounds = Infinity, report = false, objective = 'latency', patience } = options;
  const { manifest } = engine.parts;
  const specs = await openSpecs(engine);
  // A page that did not ask for them gets its winners now.
  await pace.job(() => restore(engine));
  const record = await recall(engine);
  if (!record.about.length) record.about = await aboutKernels(engine);
  const code = await specs.code();
  /** @type {Map<number, Tune.Target>} */
  const targets = new Map();
  /** Of each kernel, the ratios to its default that were measured. @type {Map<number, Map<number, number>>} */
  const ratios = new Map();
  /** @type {Map<number, Tune.Offer>} */
  const offers = new Map();
  const winners = new Map(record.winners.map((winner) => [winner.spec, winner]));
  /** Candidates of kernels whose own is not judged yet. @type {Tune.Sent[]} */
  const held = [];
  let [round, device, gone] = [0, options.device ?? '', false];
  /** @type {number | null} */
  let first = null;
  /** @type {number | null} */
  let last = null;
  /** Milliseconds that went into it. */
  let looked = 0;
  const trials = openTrials({
    code, slots: manifest.slots, scratchBytes: manifest.memory.scratch_bytes, patience,
    bytes: Math.max(...manifest.plans.flatMap(({ steps }) => steps.map(({ spec }) => specs.bytesOf(spec))).filter((bytes) => bytes <= MOST_BYTES), 0),
  });
  signal.addEventListener('abort', () => trials.close(), { once: true });
  pace.guard(trials);

  const dueToEnd = () => round >= rounds || pace.spent >= 1000 * seconds;
  const save = () => keep(engine, Object.assign(record, { device, winners: [...winners.values()] }));
  const reports = openReports({ source, record, digest: engine.info.digest, on: report, save });
  const currentOf = (/** @type {number} */ spec) => winners.get(spec)?.candidate ?? offers.get(spec)?.default ?? 0;
  /** A relinked bundle runs what a crowd found: it is believed once the compiler's own candidate agrees. */
  const inQuestion = (/** @type {number} */ spec) => (offers.get(spec)?.default ?? NONE) !== COMPILERS && record.sound[spec] !== engine.info.digest;
  const refuted = (/** @type {number} */ spec) => record.refuted[spec] === engine.info.digest;
  const gainOf = (/** @type {number} */ spec) => winners.get(spec)?.ratio ?? 1;

  /** What of the plans is worth tuning, hottest first. */
  async function profile() {
    const { lent } = engine.parts;
    // Runs in other buckets would write over inputs that the page fills in place.
    const order = [...manifest.plans.keys()].filter((plan) => !lent.size || lent.has(plan)).reverse();
    if (pace.latest >= 0) order.sort((a, b) => Number(b === pace.latest) - Number(a === pace.latest));
    const wanted = options.specs && new Set(options.specs);
    for (const plan of order) {
      const bucket = manifest.plans[plan].dims;
      /** @type {T.StepTime[][]} */
      const seen = [];
      for (let time = 0, from = pace.spent; time < PROFILES && (!time || pace.spent - from < LONG); time++) {
        await pace.turn();
        seen.push((await pace.job(() => engine.profile({ bucket, runs: 1 }))).steps);
      }
      const times = seen[0].map(({ flops, bytes }, step) => Math.min(...seen.map((steps) => steps[step].milliseconds)) || Math.max(flops, bytes) / GUESS);
      const total = times.reduce((sum, time) => sum + time, 0);
      /** @type {Map<number, number>} */
      const shares = new Map();
      seen[0].forEach(({ spec }, step) => shares.set(spec, (shares.get(spec) ?? 0) + times[step] / total));
      for (const [spec, share] of [...shares].sort((a, b) => b[1] - a[1])) {
        const step = seen[0].findIndex((found) => found.spec === spec);
        const fits = specs.bytesOf(spec) <= MOST_BYTES;
        if (targets.has(spec) || !fits || !(wanted ? wanted.has(spec) : share >= LEAST_SHARE)) continue;
        const { kernel, node, flops } = seen[0][step];
        targets.set(spec, { spec, plan, bucket, step, kernel, node, flops, share: share / order.length, milliseconds: times[step] * gainOf(spec), alone: !specs.gathers(spec) });
      }
    }
  }

  function lose() {
    if (!gone) onEvent({ type: 'lost' });
    gone = true;
  }

  /** Opens the source with all that was tried; a lost one again and again. */
  async function connect() {
    // What was tried beside another bundle says nothing of this one's own kernel.
    const done = (/** @type {number} */ spec) => (record.tried[spec] ?? []).filter((candidate) => candidate !== COMPILERS || record.sound[spec] === engine.info.digest);
    const tried = Object.fromEntries([...targets.keys()].map((spec) => [spec, done(spec)]));
    const shares = [...targets.values()].map(({ share }) => Math.min(1, share));
    const hello = {
      protocol: 1, bundle: bundleName(engine.info.url), digest: engine.info.digest, device, browser: browserFamily(),
      variant: engine.info.variant.name, objective, specs: [...targets.keys()], shares, tried,
    };
    for (let attempt = 0; ; attempt++) {
      try {
        const { kernels } = await unless(source.open(hello), signal);
        kernels.forEach((offer) => offers.set(offer.spec, offer));
        if (await dropOthers(kernels)) return await connect();
        if (gone) onEvent({ type: 'resumed' });
        gone = false;
        reports.again(offers);
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (!isLost(error) || attempt + 1 >= ATTEMPTS) throw error;
        lose();
        await sleep(Math.min(BACK_OFF * 2 ** attempt, MOST_BACK_OFF) * (0.5 + Math.random() / 2), signal);
      }
    }
  }

  /** Numbers of another space (another class, another source) say nothing here; true if there were any. @param {Tune.Offer[]} kernels */
  async function dropOthers(kernels) {
    const other = kernels.filter(({ spec, checksum }) => record.tried[spec]?.length && record.checksums[spec] !== checksum);
    for (const { spec, checksum } of kernels) record.checksums[spec] = checksum;
    for (const { spec } of other) {
      [record.tried, record.bad, record.sound, record.refuted].forEach((map) => delete map[spec]);
      ratios.delete(spec);
      if (winners.delete(spec)) await pace.job(() => engine.swap([{ spec, module: null }]));
    }
    return other.length > 0;
  }

  async function nextKernel() {
    for (;;) {
      try {
        return await unless(source.next(), signal);
      } catch (error) {
        signal.throwIfAborted();
        if (!isLost(error)) throw error;
        lose();
        await sleep(BACK_OFF * Math.random(), signal);
        await connect();
      }
    }
  }

  /** @type {Tune.TryOne} */
  async function tryOne(header, module, judge) {
    const { spec, digest, tiles, scratch } = header;
    const refused = (/** @type {string} */ why) => ({ verdict: /** @type {const} */ ('refused'), milliseconds: 0, prepared: 0, resolution: 0, why });
    if (!targets.has(spec)) return refused('nobody asked for this kernel');
    if (await sha256(module) !== digest) return refused('its digest is not the announced one');
    if (!(scratch <= manifest.memory.scratch_bytes)) return refused(`it needs ${scratch} bytes of scratch memory, and ${manifest.memory.scratch_bytes} are reserved`);
    if (!(Number.isInteger(tiles) && tiles > 0)) return refused(`it has ${tiles} tiles`);
    const best = winners.get(spec);
    const incumbent = best ? { digest: best.digest, module: best.module, tiles: best.tiles } : null;
    try {
      return await unless(trials.attempt({ judge, spec, facts: () => specs.facts(spec), bytes: specs.bytesOf(spec), candidate: { digest, module, tiles }, incumbent, margin: MARGIN }), signal);
    } catch (error) {
      signal.throwIfAborted();
      return refused(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {Tune.Sent} kernel */
  async function handle({ header, module }) {
    const { spec, candidate, mark, schedule } = header;
    const tried = (record.tried[spec] ??= []);
    const judge = candidate === COMPILERS && inQuestion(spec);
    if (refuted(spec) || (tried.includes(candidate) && !judge)) return;
    if (inQuestion(spec) && !judge) {
      if (held.filter((kernel) => kernel.header.spec === spec).length < MOST_HELD) held.push({ header, module });
      return;
    }
    const outcome = await tryOne(header, module, judge);
    pace.spend(outcome.milliseconds);
    if (!tried.includes(candidate)) tried.push(candidate);
    round++;
    let { verdict, why = '' } = outcome;
    const own = outcome.refuted;
    if (own) why = `the kernel in use is wrong: ${own}`;
    if (judge && !['refused', ...BAD].includes(verdict)) record.sound[spec] = engine.info.digest;
    const { ratio = own ? 1 : NaN, low = NaN, high = NaN } = outcome;
    const before = gainOf(spec);
    if (ratio > 0) ratiosOf(spec).set(candidate, before * ratio);
    let adopted = null;
    if (verdict === 'faster') {
      const target = /** @type {Tune.Target} */ (targets.get(spec));
      const old = winners.get(spec);
      const { tiles, grains, scratch, digest } = header;
      const winner = { spec, candidate, schedule, digest, module, tiles, grains, scratch, ratio: before * ratio, ...(old?.moved && { moved: true }) };
      const change = { spec, module: /** @type {WebAssembly.Module} */ (outcome.module), tiles, grains, scratch };
      await pace.turn();
      try {
        if (own) {
          // Whatever the time: results come first.
          await pace.job(() => engine.swap([change]));
          adopted = { stays: true, before: NaN, after: NaN };
          record.refuted[spec] = engine.info.digest;
          (record.bad[spec] ??= []).push(offers.get(spec)?.default ?? NONE);
        } else adopted = await adopt(engine, pace, target, change, old ? await changeOf(old) : { spec, module: null });
        if (adopted.stays) winners.set(spec, winner);
        else verdict = 'slower';
      } catch (error) {
        signal.throwIfAborted();
        if (isDisposed(error)) throw error;
        [verdict, why] = ['refused', String(error)];
      }
    }
    if (BAD.includes(verdict)) (record.bad[spec] ??= []).push(candidate);
    onEvent({ type: 'trial', round, spec, candidate, mark, schedule, verdict, ratio, low, high, milliseconds: outcome.milliseconds, why });
    if (own) ratios.delete(spec);
    else source.result({ spec, candidate, verdict, ...bounded({ ratio, low, high }) });
    if (adopted?.stays) {
      onEvent({ type: 'swap', spec, candidate, ratio: before * ratio });
      await latency(false);
    } else if (adopted) onEvent({ type: 'rollback', spec, candidate, ratio: adopted.before / adopted.after });
    if (adopted || BAD.includes(verdict) || round % KEEP_EVERY === 0) await save();
  }

  /** @param {number} spec */
  function ratiosOf(spec) {
    const found = ratios.get(spec) ?? new Map();
    ratios.set(spec, found);
    return found;
  }

  /** @param {number} spec */
  function tell(spec) {
    if (winners.get(spec)?.moved) return;
    if (reports.tell(offers.get(spec), ratios.get(spec))) ratios.delete(spec);
  }

  /** Milliseconds of a whole run: the page's own if there were any, or else of some that nobody asked for, if those are `due`. */
  async function latency(due = true) {
    const plan = targets.values().next().value?.plan ?? 0;
    let times = pace.recent(plan);
    if (times.length < LATENCY_RUNS) {
      if (last && !due && looked > LATENCY_SHARE * pace.spent) return;
      const from = pace.spent;
      times = [];
      while (times.length < LATENCY_RUNS && (!times.length || pace.spent - from < LONG)) {
        await pace.turn();
        times.push(...(await pace.job(() => engine.time({ bucket: manifest.plans[plan].dims, runs: 1, warmup: 0 }))).milliseconds);
      }
      looked += pace.spent - from;
    }
    pace.forgetRuns();
    last = median(times);
    first ??= last;
    onEvent({ type: 'latency', round, milliseconds: last });
  }

  /** @returns {Tune.Summary} */
  function summary() {
    const kernels = [...targets.values()].map(({ spec, kernel, node, milliseconds, flops }) => {
      const offer = offers.get(spec);
      const at = (/** @type {number} */ candidate, /** @type {number} */ time, schedule = '') => ({ candidate, schedule, milliseconds: time, gflops: flops / time / 1e6 });
      const gain = gainOf(spec);
      return {
        spec, kind: offer?.kind ?? kernel, shape: offer?.shape ?? '', node, gain, tried: record.tried[spec]?.length ?? 0,
        default: at(offer?.default ?? 0, milliseconds), current: at(currentOf(spec), milliseconds / gain, winners.get(spec)?.schedule),
      };
    });
    return { rounds: round, seconds: pace.spent / 1000, class: device, kernels, before: first, after: last };
  }

  try {
    device ||= await deviceClass();
    await profile();
    if (targets.size) {
      await connect();
      const offered = [...targets.values()].map(({ spec, node, share, kernel, flops, milliseconds }) => ({ flops, milliseconds, spec, kind: offers.get(spec)?.kind ?? kernel, shape: offers.get(spec)?.shape ?? '', node, share }));
      onEvent({ type: 'start', class: device, kernels: offered });
      await latency();
      while (!dueToEnd()) {
        await pace.turn();
        const kernel = await nextKernel();
        if (!kernel) break;
        if ('done' in kernel) {
          tell(kernel.done);
          continue;
        }
        await handle(kernel);
        while (!dueToEnd() && kernel.header.candidate === COMPILERS) {
          const next = held.findIndex(({ header: { spec } }) => spec === kernel.header.spec && !inQuestion(spec));
          if (next < 0) break;
          await pace.turn();
          await handle(held.splice(next, 1)[0]);
        }
      }
      if (round) await latency();
    }
  } catch (error) {
    // Cancelled, or the engine was disposed: what was found so far is kept.
    if (!signal.aborted && !isDisposed(error)) throw error;
  } finally {
    trials.close();
    if (round) await save();
    [...ratios.keys()].forEach(tell);
    await reports.farewell();
  }
  onEvent({ type: 'end', summary: summary() });
  return summary();

  /** The class of this device; found out once. */
  async function deviceClass() {
    if (record.device) return record.device;
    const table = await unless(/** @type {any} */ (source).classes(), signal);
    await pace.turn();
    const { name } = engine.info.variant;
    const found = classify(table, factsOf(engine.info, await trials.l1()), name);
    if (found) return found;
    throw new EngineError('unsupported-host', `No device class runs the code variant '${name}'`, 'Load the bundle with the variant that the browser prefers');
  }
}

/** @param {unknown} error */
const isLost = (error) => error instanceof EngineError && error.code === 'network';

/** @param {unknown} error */
const isDisposed = (error) => error instanceof EngineError && error.code === 'disposed';

/** What is known of the ratio. @param {Record<string, number>} values */
const bounded = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value > 0).map(([key, value]) => [key, clamped(value)]));
