// What a session's trials have taught: which choices of schedules are slow on this device, in any kernel.
// Input: candidates, measured ratios.  Output: which candidates wait until others were tried.  It refuses none, and measures nothing.

import { COMPILERS } from '../records/ledger.js';
import { LATENCY } from './objective.js';

/** A candidate waits if the logarithm of its speed is expected this far below that of the kernel's fastest. */
const BEHIND = 0.15;
/** Share of an error by which the choices that explain it are corrected. */
const RATE = 0.8;
/** Candidates that wait at most, and where this device compiled them, which takes time of the session; then the most promising one is tried. */
const [MOST_WAITING, MOST_MADE] = [512, 32];

/** By field, the choice in a schedule such as 'contraction x0=4 r0=8'; a choice of another form is another one. @param {string} schedule */
function choicesOf(schedule) {
  const [form, ...words] = schedule.split(' ');
  return new Map(words.map((word) => [`${form} ${word.split('=')[0]}`, `${form} ${word}`]));
}

/** @type {Tune.OpenForecast} */
export function openForecast(ledger, objective, effects) {
  /** By kernel, the fastest that was measured. @type {Map<number, {choices: Map<string, string>, speed: number}>} */
  const measured = new Map();
  /** @type {{sent: Tune.Sent, choices: Map<string, string>}[]} */
  let waiting = [];

  const effectOf = (/** @type {string} */ choice) => effects.get(choice) ?? 0;

  /** The fastest that is known of a kernel: of this session, or the kernel in use, of an earlier one. @param {number} spec */
  function fastest(spec) {
    const winner = ledger.winner(spec);
    if (measured.has(spec) || !winner || ledger.unknown(spec)) return measured.get(spec);
    return { choices: choicesOf(winner.schedule), speed: Math.log(winner.ratio) };
  }

  /**
   * The choices that differ, each with the other schedule's; none if the forms do: nothing is known of those.
   * @param {Map<string, string>} own @param {Map<string, string>} other
   */
  const apart = (own, other) => [...own].flatMap(([field, choice]) => {
    const instead = other.get(field);
    return instead === undefined || instead === choice ? [] : [{ choice, instead }];
  });

  /** Expected logarithm of the speed over that of the kernel's fastest; choices that nobody has tried count nothing. @param {number} spec @param {Map<string, string>} choices */
  function ahead(spec, choices) {
    const best = fastest(spec);
    if (!best) return 0;
    return apart(choices, best.choices).reduce((sum, { choice, instead }) => sum + (effects.has(choice) ? effectOf(choice) - effectOf(instead) : 0), 0);
  }

  /** Whether its turn is now: other kernels are judged by it, or its speed is not what counts. @param {Tune.Header} header */
  function mustCome({ spec, candidate }) {
    const { gold } = ledger.offers.get(spec) ?? {};
    return objective !== LATENCY || candidate === COMPILERS || candidate === gold?.a || candidate === gold?.b;
  }

  const isBehind = (/** @type {Tune.Header} */ header, choices = choicesOf(header.schedule)) => !mustCome(header) && ahead(header.spec, choices) < -BEHIND;

  /** Takes the most promising one out, if there is one that promises `least`. @param {number} least */
  function take(least) {
    const values = waiting.map(({ sent, choices }) => ahead(sent.header.spec, choices));
    const best = values.indexOf(Math.max(...values));
    return best < 0 || values[best] < least ? null : waiting.splice(best, 1)[0].sent;
  }

  return {
    waits: ({ header }) => isBehind(header),

    holds: (spec) => waiting.some(({ sent }) => sent.header.spec === spec),

    learn({ spec, candidate, schedule }, ratio) {
      const { count = Infinity } = ledger.offers.get(spec) ?? {};
      // The slow kernel of a gold question is no candidate, and differs in everything.
      if (candidate >= count || !Number.isFinite(Math.log(ratio))) return;
      const [choices, speed] = [choicesOf(schedule), Math.log(ratio)];
      const best = fastest(spec);
      if (best) {
        const found = apart(choices, best.choices);
        const expected = found.reduce((sum, { choice, instead }) => sum + effectOf(choice) - effectOf(instead), 0);
        const each = RATE * (speed - best.speed - expected) / (2 * found.length);
        for (const { choice, instead } of found) {
          effects.set(choice, effectOf(choice) + each);
          effects.set(instead, effectOf(instead) - each);
        }
      }
      if (!best || speed > best.speed) measured.set(spec, { choices, speed });
    },

    ready() {
      // Numbers mean something else in another space.
      waiting = waiting.filter(({ sent: { header: { spec, checksum } } }) => !checksum || ledger.offers.get(spec)?.checksum === checksum);
      return take(-BEHIND);
    },

    last: () => take(-Infinity),

    sift(sent) {
      const { spec, candidate, schedule } = sent.header;
      // After a new connection a source sends again what was not tried.
      waiting = waiting.filter(({ sent: { header } }) => header.spec !== spec || header.candidate !== candidate);
      const choices = choicesOf(schedule);
      if (!isBehind(sent.header, choices)) return sent;
      waiting.push({ sent, choices });
      return waiting.length > (sent.milliseconds ? MOST_MADE : MOST_WAITING) ? take(-Infinity) : null;
    },
  };
}
