// What a session's trials have taught: which choices of schedules are slow on this device, in any kernel; and which candidate is tried next.
// Input: candidates, measured ratios.  Output: the candidate whose turn it is.  It refuses none, and measures nothing.

import { COMPILERS } from '../records/ledger.js';
import { LATENCY } from './objective.js';

/** Candidates in hand that are chosen from. */
const IN_HAND = 8;
/** A candidate waits if the logarithm of its speed is expected this far below that of the kernel's fastest. */
const BEHIND = 0.15;
/** What a place in the source's order counts, in the same logarithm. */
const PLACE = 0.02;
/** A candidate that is expected to save this share of the model's time comes before the kernel whose turn it is. */
const SAVING = 0.005;
/** Share of an error by which the choices that explain it are corrected. */
const RATE = 0.8;
/** Candidates in hand at most, and where this device compiled them, which takes time of the session. */
const [MOST_HELD, MOST_MADE] = [512, 32];

/** By field, the choice in a schedule such as 'contraction x0=4 r0=8'; a choice of another form is another one. @param {string} schedule */
function choicesOf(schedule) {
  const [form, ...words] = schedule.split(' ');
  return new Map(words.map((word) => [`${form} ${word.split('=')[0]}`, `${form} ${word}`]));
}

/** The element with the largest value, the first of equal ones. @type {<T>(list: T[], value: (one: T, place: number) => number) => T} */
const most = (list, value) => {
  const values = list.map(value);
  return list[values.indexOf(Math.max(...values))];
};

/** @type {Tune.OpenForecast} */
export function openForecast({ ledger, objective, effects, shareOf }) {
  /** By kernel, the fastest that was measured. @type {Map<number, Tune.Fastest>} */
  const measured = new Map();
  /** In the order in which they came. @type {Tune.InHand[]} */
  let hand = [];

  const effectOf = (/** @type {string} */ choice) => effects.get(choice) ?? 0;

  /** The fastest that is known of a kernel: of this session, of an earlier one, or the bundle's own. @type {(spec: number) => Tune.Fastest | undefined} */
  function fastest(spec) {
    const known = measured.get(spec);
    if (known || ledger.unknown(spec)) return known;
    const { schedule, ratio } = ledger.winner(spec) ?? { schedule: ledger.offers.get(spec)?.schedule, ratio: 1 };
    if (!schedule) return known;
    const found = { choices: choicesOf(schedule), speed: Math.log(ratio) };
    measured.set(spec, found);
    return found;
  }

  /**
   * The choices that differ, each with the other schedule's; none if the forms do: nothing is known of those.
   * @param {Map<string, string>} own @param {Map<string, string>} other
   */
  const apart = (own, other) => [...own].flatMap(([field, choice]) => {
    const instead = other.get(field);
    return instead === undefined || instead === choice ? [] : [{ choice, instead }];
  });

  /** Expected logarithm of the speed over that of the kernel's fastest; choices that nobody has tried count nothing. @param {Tune.InHand} candidate */
  function ahead({ sent: { header: { spec } }, choices }) {
    const best = fastest(spec);
    if (!best) return 0;
    return apart(choices, best.choices).reduce((sum, { choice, instead }) => sum + (effects.has(choice) ? effectOf(choice) - effectOf(instead) : 0), 0);
  }

  /** Whether its turn is now: other kernels are judged by it, or its speed is not what counts. @param {Tune.InHand} candidate */
  function mustCome({ sent: { header: { spec, candidate } } }) {
    const { gold } = ledger.offers.get(spec) ?? {};
    return objective !== LATENCY || candidate === COMPILERS || candidate === gold?.a || candidate === gold?.b;
  }

  /** The candidate whose turn it is, or null while the source may send a better one. @type {(dry: boolean) => Tune.InHand | null} */
  function choose(dry) {
    const forced = hand.find(mustCome);
    if (forced || !hand.length) return forced ?? null;
    const all = hand.map((candidate) => ({ candidate, expected: ahead(candidate), spec: candidate.sent.header.spec }));
    const worth = all.filter(({ expected }) => expected >= -BEHIND);
    const isFull = hand.length > (hand.some(({ sent }) => sent.milliseconds) ? MOST_MADE : MOST_HELD);
    // Before the first trial nothing is known, and the source's order is as good as any.
    if (effects.size && worth.length < IN_HAND && !isFull && !dry) return null;
    if (!worth.length) return dry || isFull ? most(all, ({ expected }) => expected).candidate : null;
    const saving = (/** @type {typeof all[number]} */ { spec, expected }) => shareOf(spec) * (1 - Math.exp(-expected));
    const hope = most(worth, saving);
    if (saving(hope) > SAVING) return hope.candidate;
    const own = worth.filter(({ spec }) => spec === worth[0].spec);
    return most(own, ({ expected }, place) => expected - PLACE * place).candidate;
  }

  return {
    take(sent) {
      const { spec, candidate, schedule } = sent.header;
      // After a new connection a source sends again what was not tried.
      hand = hand.filter(({ sent: { header } }) => header.spec !== spec || header.candidate !== candidate);
      hand.push({ sent, choices: choicesOf(schedule) });
    },

    next(dry) {
      // Numbers mean something else in another space.
      hand = hand.filter(({ sent: { header: { spec, checksum } } }) => !checksum || ledger.offers.get(spec)?.checksum === checksum);
      const chosen = choose(dry);
      hand = hand.filter((candidate) => candidate !== chosen);
      return chosen?.sent ?? null;
    },

    peek: () => choose(true)?.sent ?? null,

    holds: (spec) => hand.some(({ sent }) => sent.header.spec === spec),

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
  };
}
