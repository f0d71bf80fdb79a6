// What trials have taught of a session's schedules: which candidates can wait, because their choices were slow before, in any kernel.
// Input: candidates, measured ratios.  Output: the next one to try.  It is a guess that saves trials: it refuses nothing, and measures nothing.

import { COMPILERS } from '../records/ledger.js';
import { LATENCY } from './objective.js';

/** A candidate waits if the logarithm of its speed is expected this far below the fastest that was measured. */
const BEHIND = 0.2;
/** Share of an error by which the choices that explain it are corrected. */
const RATE = 0.8;

/** The choices of a schedule; those of another form mean something else. @param {string} schedule */
function choicesOf(schedule) {
  const [form, ...words] = schedule.split(' ');
  return words.map((word) => `${form} ${word}`);
}

/** @type {Tune.OpenForecast} */
export function openForecast({ offers }, objective) {
  /** By choice, what it adds to the logarithm of a kernel's speed. @type {Map<string, number>} */
  const effects = new Map();
  /** By kernel, the fastest that was measured, which others are compared with. @type {Map<number, {choices: string[], speed: number}>} */
  const fastest = new Map();
  /** @type {Tune.Sent[]} */
  let waiting = [];
  /** Kernels of which no more will come. @type {Set<number>} */
  const ended = new Set();

  /** What two schedules differ in. @param {string[]} own @param {string[]} other */
  const apart = (own, other) => ({ more: own.filter((choice) => !other.includes(choice)), less: other.filter((choice) => !own.includes(choice)) });
  const sum = (/** @type {string[]} */ choices) => choices.reduce((total, choice) => total + (effects.get(choice) ?? 0), 0);
  const add = (/** @type {string[]} */ choices, /** @type {number} */ value) => choices.forEach((choice) => effects.set(choice, (effects.get(choice) ?? 0) + value));

  /** Expected logarithm of the speed over that of the fastest that was measured; 0 before one was. @param {Tune.Header} header */
  function ahead({ spec, schedule }) {
    const best = fastest.get(spec);
    if (!best) return 0;
    const { more, less } = apart(choicesOf(schedule), best.choices);
    return sum(more) - sum(less);
  }

  /** Whether its turn is now: the order has reasons of its own for candidates that others are compared with. @param {Tune.Header} header */
  function mustCome({ spec, candidate }) {
    const { gold } = offers.get(spec) ?? {};
    return objective !== LATENCY || candidate === COMPILERS || candidate === gold?.a || candidate === gold?.b;
  }

  const waits = (/** @type {Tune.Sent} */ { header }) => !mustCome(header) && ahead(header) < -BEHIND;

  /** Takes the most promising one out, if it promises `least`. @param {number} least */
  function take(least) {
    const best = waiting.reduce((/** @type {Tune.Sent | null} */ found, sent) => (found && ahead(found.header) >= ahead(sent.header) ? found : sent), null);
    if (!best || ahead(best.header) < least) return null;
    waiting = waiting.filter((sent) => sent !== best);
    return best;
  }

  /** A kernel of which all were tried. */
  function finished() {
    for (const done of ended) {
      if (waiting.some(({ header }) => header.spec === done)) continue;
      ended.delete(done);
      return { done };
    }
    return null;
  }

  return {
    waits,

    learn({ spec, schedule }, ratio) {
      const [choices, speed] = [choicesOf(schedule), Math.log(ratio)];
      const best = fastest.get(spec);
      if (best) {
        const { more, less } = apart(choices, best.choices);
        const error = speed - best.speed - (sum(more) - sum(less));
        const each = RATE * error / (more.length + less.length);
        if (Number.isFinite(each)) [[more, each], [less, -each]].forEach(([found, value]) => add(/** @type {string[]} */ (found), /** @type {number} */ (value)));
      }
      if (!best || speed > best.speed) fastest.set(spec, { choices, speed });
    },

    ready() {
      // Numbers mean something else in another space.
      waiting = waiting.filter(({ header: { spec, checksum } }) => offers.get(spec)?.checksum === checksum);
      return finished() ?? take(-BEHIND);
    },

    sift(sent) {
      if (!sent) return take(-Infinity) ?? finished();
      if ('done' in sent) {
        ended.add(sent.done);
        return finished() ?? undefined;
      }
      if (!waits(sent)) return sent;
      // After a new connection a source sends again what was not tried.
      const same = (/** @type {Tune.Sent} */ { header }) => header.spec === sent.header.spec && header.candidate === sent.header.candidate;
      waiting = [...waiting.filter((one) => !same(one)), sent];
      return undefined;
    },
  };
}
