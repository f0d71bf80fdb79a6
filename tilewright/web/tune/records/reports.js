// Votes of a tuning run: told when a kernel is done, and kept until the source has answered.
// Input: ratios to the default that were measured, a source.  Output: reports, each with a nonce of its own.
// What was not acknowledged is sent again by a later visit, for a day.

import { COMPILERS, NONE } from './ledger.js';

/** Votes of a report, and the largest ratio that is believed. */
const TOP = 5;
const MOST_VOTE = 20;
/** Milliseconds that the last reports may take. */
const FAREWELL = 3000;
/** Milliseconds after which a report is too old: stores count by days. */
const DAY = 86_400_000;

/** @type {Tune.OpenReports} */
export function openReports({ source, record, digest, on, save }) {
  const fresh = (/** @type {Tune.Unsent} */ { at, digest: from }) => on && from === digest && Date.now() - at < DAY && at <= Date.now();
  record.unsent = (record.unsent ?? []).filter(fresh);
  /** Nonces that are with the source. @type {Set<string>} */
  const open = new Set();
  /** @type {Promise<unknown>[]} */
  const sent = [];
  /** What this visit answered to gold questions, by kernel. @type {Map<number, Tune.Report['gold']>} */
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
    /** What could not be told before; of kernels of this session alone, for others would be refused. */
    again(offers) {
      for (const { report } of record.unsent) {
        const offer = offers.get(report.spec);
        if (open.has(report.nonce) || offer?.checksum !== report.checksum) continue;
        const whole = fitting(report, offer, answers.get(report.spec) ?? report.gold);
        if (whole) sent.push(send(whole));
      }
    },

    /** Reports the best of a kernel; false if there is nothing to say, or not yet. */
    tell(offer, found) {
      if (!on || !offer || !found?.size) return false;
      const { spec, checksum, gold: asked } = offer;
      // Another default is counted over the compiler's own.
      if (offer.default !== COMPILERS && !found.has(COMPILERS)) return false;
      const ratioOf = (/** @type {number} */ candidate) => (candidate === offer.default ? 1 : found.get(candidate));
      const [a, b] = [ratioOf(asked?.a ?? NONE), ratioOf(asked?.b ?? NONE)];
      if (asked && !(a && b)) return false;
      const gold = asked && a && b ? { ...asked, ratio: clamped(a / b) } : null;
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

/** The best of what was measured over the default; beside another default than its own, the compiler's is among them. @type {Tune.TopOf} */
export function topOf(found, own) {
  const ranked = [...found].sort((x, y) => y[1] - x[1]);
  const base = own === COMPILERS ? [] : ranked.filter(([candidate]) => candidate === COMPILERS);
  const best = ranked.filter((entry) => !base.includes(entry)).slice(0, TOP - base.length);
  return [...best, ...base].sort((x, y) => y[1] - x[1]).map(([candidate, ratio]) => ({ candidate, ratio: clamped(ratio) }));
}

/**
 * A report as this session must send it: with an answer to the gold question that it was asked, and to no other.
 * Who was not asked when the report was made has none, and may have it later in this session.
 * @type {Tune.Fitting}
 */
function fitting(report, { gold: asked }, answer) {
  if (!asked) return { ...report, gold: null };
  return answer?.a === asked.a && answer.b === asked.b ? { ...report, gold: answer } : null;
}

/** Three digits are as good as any measurement here; all of them would tell a winner's device by its ratio. @param {number} ratio */
const clamped = (ratio) => Number(Math.min(MOST_VOTE, Math.max(1 / MOST_VOTE, ratio)).toPrecision(3));

const nonce = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
