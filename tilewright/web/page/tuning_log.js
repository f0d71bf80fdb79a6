// What a tuning session has found so far, worked out from the tuner's events.
// Input: events of tune/tuner.js, one by one.  Output: points for the chart, a row per kernel, a sentence.
// It touches no element of the page.

import { TOP } from '../tune/reports.js';
import { countText, timeText } from './words.js';

/**
 * What became of a trial, as people see it.
 * @typedef {'adopted' | 'same' | 'slower' | 'rejected'} Outcome
 * @typedef {{round: number, milliseconds: number}} Latency
 * @typedef {{round: number, milliseconds: number, outcome: Outcome, spec: number}} Trial
 * @typedef {{candidate: number, schedule: string, mark: string, gain: number}} Change
 * @typedef {{spec: number, kind: string, shape: string, node: string, share: number, gflops: number,
 *   tried: number, change: Change | null, best: {candidate: number, ratio: number}[], seen: Map<number, {schedule: string, mark: string}>}} Slot
 */

/** @type {Record<string, Outcome>} */
const OUTCOMES = { faster: 'adopted', same: 'same', slower: 'slower' };

export class TuningLog {
  device = '';
  round = 0;
  /** Why it pauses; empty while it goes on. */
  paused = '';
  ended = false;
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

  /** The last latency, and the first one. */
  get latency() {
    return { before: this.latencies[0]?.milliseconds ?? 0, now: this.latencies.at(-1)?.milliseconds ?? 0 };
  }

  get changed() {
    return [...this.slots.values()].filter(({ change }) => change).length;
  }

  /** In one sentence. */
  get text() {
    const { before, now } = this.latency;
    const latency = before ? `${timeText(before)} → ${timeText(now)} (${gainText(before / now)})` : '';
    const parts = [latency, countText(this.round, 'round'), `${countText(this.changed, 'kernel')} changed`];
    return parts.filter(Boolean).join(' · ');
  }
}

/** @type {Record<string, (log: TuningLog, event: Record<string, any>) => void>} */
const HANDLERS = {
  start(log, event) {
    log.device = event.class;
    log.slots = new Map(event.kernels.map((/** @type {any} */ kernel) => [kernel.spec, {
      ...kernel, gflops: (kernel.flops ?? 0) / (kernel.milliseconds || Infinity) / 1e6, tried: 0, change: null, best: [], seen: new Map(),
    }]));
  },

  trial(log, { round, spec, verdict, candidate, ratio, mark, schedule }) {
    log.round = Math.max(log.round, round);
    const slot = log.slots.get(spec);
    if (!slot) return;
    slot.tried++;
    const outcome = OUTCOMES[verdict] ?? 'rejected';
    log.trials.push({ round, spec, outcome, milliseconds: projected(log, slot, outcome === 'rejected' ? 1 : ratio) });
    if (outcome === 'rejected') return;
    const overDefault = ratio * gainOf(slot);
    slot.best = [...slot.best, { candidate, ratio: overDefault }].sort((a, b) => b.ratio - a.ratio).slice(0, TOP);
    // A swap names the candidate alone; what it looks like was said here.
    slot.seen.set(candidate, { schedule, mark });
  },

  swap(log, { spec, candidate, ratio }) {
    const slot = log.slots.get(spec);
    if (slot) slot.change = { candidate, gain: ratio, schedule: '', mark: '', ...slot.seen.get(candidate) };
  },

  latency(log, { round, milliseconds }) {
    log.round = Math.max(log.round, round);
    log.latencies.push({ round, milliseconds });
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
    // Its figures are the tuner's own; those on the way were worked out.
    for (const { spec, default: usual } of summary.kernels) Object.assign(log.slots.get(spec) ?? {}, { gflops: usual.gflops });
  },
};

/** How many times faster than its default a kernel is now. @param {Slot} slot */
export const gainOf = ({ change }) => change?.gain ?? 1;

/**
 * What an inference would take with the kernel that was tried: only its share of the time changes.
 * @param {TuningLog} log
 * @param {Slot} slot
 * @param {number} ratio
 */
function projected(log, slot, ratio) {
  const { before, now } = log.latency;
  return now + (before * slot.share / gainOf(slot)) * (1 / ratio - 1);
}

/** @param {number} gain */
export const gainText = (gain) => `${gain.toFixed(2)}×`;
