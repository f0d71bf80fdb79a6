// The state of a tuning session, derived from the tuner's events.
// Input: events of tune/tuner.js, one by one.  Output: points for the chart, a row per kernel, a sentence.
// It does not touch the page.

import { topOf } from '../tune/records/reports.js';
import { countText, timeText } from './elements.js';

/**
 * A trial's verdict, simplified for display.
 * @typedef {'adopted' | 'same' | 'slower' | 'rejected'} Outcome
 * @typedef {{round: number, milliseconds: number}} Latency
 * @typedef {{round: number, milliseconds: number, outcome: Outcome, spec: number, candidate: number, verdict: string, refuted: boolean}} Trial
 * A kernel that replaces the bundle's own; `gain` is null if it was never measured.
 * @typedef {{candidate: number, schedule: string, mark: string, gain: number | null, moved?: boolean}} Change
 * A kernel.  `origin`: the candidate in use when the session began; `first`: the change in use when it last resumed, as after a
 * hidden tab; `found`: by candidate, the ratios to the default measured in this session; `seen`: by candidate, what it looks like.
 * @typedef {{spec: number, plan: number, kind: string, shape: string, fixed: string, node: string, part: number, share: number, flops: number, gflops: number, default?: number | null,
 *   tried: number, origin: number | undefined, first: Change | null, change: Change | null, found: Map<number, number>, seen: Map<number, {schedule: string, mark: string, gain?: null}>}} Slot
 */

/** @type {Record<string, Outcome>} */
const OUTCOMES = { faster: 'adopted', same: 'same', slower: 'slower' };

const NOTHING = { plan: -1, milliseconds: 0 };

export class TuningLog {
  device = '';
  round = 0;
  /** Why it is paused; '' while it runs. */
  paused = '';
  ended = false;
  /** Pairs measured so far in the comparison at the end; null before it. @type {number | null} */
  pairs = null;
  /** The session's gain, once it is known. @type {Gains.Gain | null} */
  gain = null;
  /** The plan whose latency is drawn, and its first latency since the start: `part` of a kernel is a share of that. */
  drawn = NOTHING;
  /** @type {Latency[]} */
  latencies = [];
  /** @type {Trial[]} */
  trials = [];
  /** @type {Map<number, Slot>} */
  slots = new Map();

  /** @param {Record<string, any>} event */
  take(event) {
    const handle = HANDLERS[event.type];
    if (handle) handle(this, event);
  }

  /** The last latency; 0 while none is known. */
  get latency() {
    return this.latencies.at(-1)?.milliseconds ?? 0;
  }

  /** Number of kernels that this session changed. */
  get changed() {
    return [...this.slots.values()].filter(({ origin, change }) => change?.candidate !== origin).length;
  }

  /** Number of tuned kernels in use, of this and earlier visits. */
  get tuned() {
    return [...this.slots.values()].filter(({ change }) => change).length;
  }

  /** One line of text.  Latencies during the session are not compared: the gain is measured at the end. */
  get text() {
    const { latency, gain, pairs, round, changed } = this;
    const earlier = [...this.slots.values()].filter(({ origin, change }) => change && change.candidate === origin).length;
    return [
      gain || pairs === null ? '' : `measuring the gain (${countText(pairs, 'pair')})`,
      gain?.text ?? (latency ? `${timeText(latency)} so far` : ''),
      gain && !('tuned' in gain) && latency ? timeText(latency) : '',
      countText(round, 'round'),
      gain?.verdict === 'none' ? '' : `${countText(changed, 'kernel')} changed`,
      earlier > 0 ? `${countText(earlier, 'kernel')} of an earlier visit` : '',
    ].filter(Boolean).join(' · ');
  }
}

/** @type {Record<string, (log: TuningLog, event: Record<string, any>) => void>} */
const HANDLERS = {
  start(log, event) {
    log.device = event.class;
    log.drawn = NOTHING;
    const known = log.slots;
    log.slots = new Map(event.kernels.map((/** @type {any} */ kernel) => [kernel.spec, {
      ...kernel, gflops: 0, tried: 0,
      origin: known.has(kernel.spec) ? known.get(kernel.spec)?.origin : kernel.current?.candidate, first: firstOf(kernel), change: firstOf(kernel), found: new Map(), seen: new Map(),
    }]));
  },

  trial(log, { round, spec, verdict, refuted, candidate, ratio, own, mark, schedule }) {
    log.round = Math.max(log.round, round);
    const slot = log.slots.get(spec);
    if (!slot) return;
    slot.tried++;
    if (own > 0) slot.gflops = slot.flops / own / 1e6;
    const outcome = OUTCOMES[verdict] ?? 'rejected';
    log.trials.push({ round, spec, candidate, verdict, refuted, outcome, milliseconds: projected(log, slot, outcome === 'rejected' ? 1 : ratio) });
    if (outcome === 'rejected') return;
    // Ratios to a wrong kernel are not reported, only that the compiler's own is better beyond measure.
    if (refuted) slot.found = new Map([[candidate, Infinity]]);
    else if (ratio > 0) slot.found.set(candidate, ratio * gainOf(slot));
    // A `swap` event has only the candidate's number, so its description is kept here.
    slot.seen.set(candidate, { schedule, mark, ...(refuted && { gain: null }) });
  },

  swap(log, { spec, candidate, ratio }) {
    const slot = log.slots.get(spec);
    if (slot) slot.change = { candidate, gain: ratio, schedule: '', mark: '', ...slot.seen.get(candidate) };
  },

  /** The engine was slower with it: right after its trial, or with all changes together at the end. */
  rollback(log, { spec, candidate, ratio }) {
    const slot = log.slots.get(spec);
    if (!slot) return;
    const most = gainOf(slot) * Math.min(1, ratio);
    slot.found.set(candidate, most);
    if (slot.change?.candidate !== candidate) return;
    // Caps the other ratios of this kernel, like the ledger's humble().
    slot.found.forEach((ratio, other) => slot.found.set(other, Math.min(ratio, most)));
    slot.change = slot.first;
  },

  latency(log, { round, plan, milliseconds }) {
    log.round = Math.max(log.round, round);
    if (log.drawn.plan !== plan) log.drawn = { plan, milliseconds };
    log.latencies.push({ round, milliseconds });
  },

  turns(log, { pairs }) {
    log.pairs = pairs;
  },

  paused(log, { why }) {
    log.paused = why || 'paused';
  },

  resumed(log) {
    log.paused = '';
  },

  end(log, { summary }) {
    log.ended = true;
    log.paused = '';
    log.gain = summary.gain;
  },
};

/** The winner of an earlier visit, if any. @param {any} kernel @returns {Change | null} */
const firstOf = ({ current }) => (current ? { mark: '', ...current } : null);

/** The candidates that a report on this kernel would list; empty if none was measured. @param {Slot} slot */
export function bestOf({ found, first, default: own = 0 }) {
  if (!found.size || first?.moved) return [];
  return topOf(new Map([...first ? /** @type {[number, number][]} */ ([[first.candidate, first.gain ?? 1]]) : [], ...found]), own);
}

/** How many times as fast as its default a kernel is now, by its trials; 1 if unknown. @param {Slot} slot */
export const gainOf = ({ change }) => change?.gain ?? 1;

/**
 * Expected latency of the drawn plan with the tried kernel: only that kernel's part of the time changes, and kernels of other
 * plans change nothing.
 * @param {TuningLog} log
 * @param {Slot} slot
 * @param {number} ratio
 */
function projected(log, slot, ratio) {
  const now = log.latency;
  if (slot.plan !== log.drawn.plan) return now;
  const own = log.drawn.milliseconds * slot.part * (slot.first?.gain ?? 1) / gainOf(slot);
  return now + own * (1 / ratio - 1);
}
