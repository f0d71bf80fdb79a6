// Votes of a tuning session: sent when a kernel is done, and stored until the source has acknowledged them.
// Input: measured ratios to the default, a source.  Output: reports, each with its own nonce.
// A report without an acknowledgement is sent again by later visits, for a day.

import { digitsOf } from '../../engine/vet.js';
import { COMPILERS, NONE } from './ledger.js';

/** Candidates per report. */
const TOP = 5;
/** Largest ratio that a server believes; others are clamped. */
const MOST_VOTE = 20;
/** Milliseconds to wait for the last acknowledgements. */
const FAREWELL = 3000;
/** Milliseconds after which a report is too old: stores count votes by day. */
const DAY = 86_400_000;

/** @type {Tune.OpenReports} */
export function openReports({ source, record, digest, on, save }) {
  const fresh = (/** @type {Tune.Unsent} */ { at, digest: from }) => on && from === digest && Date.now() - at < DAY && at <= Date.now();
  record.unsent = (record.unsent ?? []).filter(fresh);
  /** Nonces of reports that were sent and not answered. @type {Set<string>} */
  const open = new Set();
  /** @type {Promise<unknown>[]} */
  const sent = [];
  /** By kernel, this visit's answer to its gold question. @type {Map<number, Tune.Report['gold']>} */
  const answers = new Map();

  /** @param {Tune.Report} report */
  async function send(report) {
    open.add(report.nonce);
    try {
      await source.report(report);
      record.unsent = record.unsent.filter(({ report: { nonce } }) => nonce !== report.nonce);
      await save();
    } catch {
      open.delete(report.nonce);
    }
  }

  return {
    /** Sends stored reports again, if their kernel is offered in this session: others would be refused. */
    again(offers) {
      for (const { report } of record.unsent) {
        const offer = offers.get(report.spec);
        if (open.has(report.nonce) || offer?.checksum !== report.checksum) continue;
        const whole = fitting(report, offer, answers.get(report.spec) ?? report.gold);
        if (whole) sent.push(send(whole));
      }
    },

    /** Reports the best candidates of a kernel; false if there is nothing to report yet.  `bad`: candidates that gave wrong results or failed. */
    tell(offer, found, bad = []) {
      if (!on || !offer || !found) return false;
      const { spec, checksum, gold: asked } = offer;
      // If the default is not the compiler's own, the store converts ratios to the compiler's own, so the report must include it.
      if (offer.default !== COMPILERS && !found.has(COMPILERS)) return false;
      const ratioOf = (/** @type {number} */ candidate) => (candidate === offer.default ? 1 : found.get(candidate) ?? (bad.includes(candidate) ? 1e-9 : 0));
      const [a, b] = [ratioOf(asked?.a ?? NONE), ratioOf(asked?.b ?? NONE)];
      if (asked && !(a && b) && isGold(offer)) return false;
      const gold = asked && a && b ? { ...asked, ratio: clamped(a / b) } : null;
      if (!found.size && !gold) return false;
      if (gold) answers.set(spec, gold);
      this.again(new Map([[spec, offer]]));
      const report = { nonce: nonce(), spec, checksum, top: topOf(found, offer.default), gold };
      record.unsent.push({ at: Date.now(), digest, report });
      sent.push(save().then(() => send(report)));
      return true;
    },

    farewell: async () => void await (sent.length && Promise.race([Promise.all(sent), new Promise((resolve) => setTimeout(resolve, FAREWELL))])),
  };
}

/** The best measured candidates, best first, with clamped ratios; includes the compiler's own if the default is another one. @type {Tune.TopOf} */
export function topOf(found, own) {
  const ranked = [...found].sort((x, y) => y[1] - x[1]);
  const base = own === COMPILERS ? [] : ranked.filter(([candidate]) => candidate === COMPILERS);
  const best = ranked.filter((entry) => !base.includes(entry)).slice(0, TOP - base.length);
  return [...best, ...base].sort((x, y) => y[1] - x[1]).map(([candidate, ratio]) => ({ candidate, ratio: clamped(ratio) }));
}

/**
 * A stored report as this session must send it: with the answer to the question asked now, or without one if none is asked.
 * Null if it is a gold question and this session has no answer yet.
 * @type {Tune.Fitting}
 */
function fitting(report, offer, answer) {
  const { gold: asked } = offer;
  if (asked && answer?.a === asked.a && answer.b === asked.b) return { ...report, gold: answer };
  return asked && isGold(offer) ? null : { ...report, gold: null };
}

/** True for a gold question, whose answer is known.  Other questions are about a candidate of the crowd; a device that tried it on an earlier visit has no answer. @param {Tune.Offer} offer */
const isGold = ({ gold, count }) => (gold?.b ?? NONE) >= count;

/** Rounds to three digits: measurements are no better, and more digits would identify the device. @param {number} ratio */
const clamped = (ratio) => Number(Math.min(MOST_VOTE, Math.max(1 / MOST_VOTE, ratio)).toPrecision(3));

const nonce = () => digitsOf(crypto.getRandomValues(new Uint8Array(16)));
