// Learns from a session's trials which schedule choices are slow on this device, for all kernels, and picks the next candidate.
// Input: candidates, measured ratios.  Output: the next candidate.  Nothing is measured here.  Only two kinds of candidates are dropped:
// those of another space, and surplus ones while the compiler's own candidate has not arrived.

import { COMPILERS } from '../records/ledger.js';
import { LATENCY } from './objective.js';

/** A candidate is deferred if the logarithm of its expected speed is below that of its kernel's fastest by more than this. */
const BEHIND = 0.15;
/** The weight of one position in the source's order, in the same logarithm. */
const PLACE = 0.02;
/** A candidate that is expected to save at least this share of the model's time is tried before those of the kernel that is next in order. */
const SAVING = 0.005;
/** The share of a prediction error by which the effects of the differing choices are corrected. */
const RATE = 0.8;
/** The most candidates that are held; fewer if this device compiled them, since compiling takes time of the session. */
const [MOST_IN_HAND, MOST_MADE] = [512, 32];
/** The most candidates of a kernel that are held while they wait for the compiler's own, which may never come. */
const MOST_CLOSED = 8;

/**
 * By field, the choice in a schedule such as 'contraction x0=4 r0=8'.  Choices of different forms are different.
 * @type {(schedule: string) => Tune.Choices}
 */
function parse(schedule) {
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
  /** By kernel, the fastest measured candidate. @type {Map<number, Tune.Fastest>} */
  const measured = new Map();
  /** By kernel, the logarithm of its speed when its share of the time was measured. @type {Map<number, number>} */
  const began = new Map();
  /** Held candidates, in the order in which they came. @type {Tune.Sent[]} */
  let hand = [];

  /** The choices of each schedule. @type {Map<string, Tune.Choices>} */
  const parsed = new Map();
  const choicesOf = (/** @type {string} */ schedule) => {
    const choices = parsed.get(schedule) ?? parse(schedule);
    parsed.set(schedule, choices);
    return choices;
  };

  const effectOf = (/** @type {string} */ choice) => effects.get(choice) ?? 0;

  /** The kernel that an earlier session put in use, or the bundle's own. @type {(spec: number) => Tune.Fastest | undefined} */
  function inUse(spec) {
    if (ledger.unknown(spec)) return undefined;
    const { schedule, ratio } = ledger.winner(spec) ?? { schedule: ledger.offers.get(spec)?.schedule, ratio: 1 };
    return schedule ? { choices: choicesOf(schedule), speed: Math.log(ratio) } : undefined;
  }

  const fastest = (/** @type {number} */ spec) => measured.get(spec) ?? inUse(spec);

  /** A kernel's present share of the time, which falls as the kernel gets faster. @param {number} spec */
  function shareNow(spec) {
    const { speed } = fastest(spec) ?? { speed: 0 };
    if (!began.has(spec)) began.set(spec, speed);
    return shareOf(spec) * Math.exp((began.get(spec) ?? speed) - speed);
  }

  /** The choices that differ, in pairs; none if the forms differ, since nothing is known then. @param {Tune.Choices} own @param {Tune.Choices} other */
  const apart = (own, other) => [...own].flatMap(([field, choice]) => {
    const instead = other.get(field);
    return instead === undefined || instead === choice ? [] : [{ choice, instead }];
  });

  /** The expected logarithm of the speed over that of the kernel's fastest; untried choices count 0. @param {Tune.Sent} sent */
  function ahead({ header: { spec, schedule } }) {
    const best = fastest(spec);
    if (!best) return 0;
    return apart(choicesOf(schedule), best.choices)
      .reduce((sum, { choice, instead }) => sum + (effects.has(choice) ? effectOf(choice) - effectOf(instead) : 0), 0);
  }

  /** True if the candidate's number refers to the offered space. @param {Tune.Sent} sent */
  const isOffered = ({ header: { spec, checksum } }) => !checksum || ledger.offers.get(spec)?.checksum === checksum;

  /** True if it may be tried: while the bundle's own kernel is in question, others wait for the compiler's. @param {Tune.Sent} sent */
  const isOpen = ({ header: { spec, candidate } }) => candidate === COMPILERS || !ledger.inQuestion(spec);

  /** True if it must come now: other candidates are judged by it, or it is not tried for its speed. @param {Tune.Sent} sent */
  function mustCome({ header: { spec, candidate } }) {
    const { gold } = ledger.offers.get(spec) ?? {};
    return objective !== LATENCY || candidate === COMPILERS || candidate === gold?.a || candidate === gold?.b;
  }

  /** The next candidate; `least`: as in `next`. @type {(least: number) => Tune.Sent | null} */
  function choose(least) {
    hand = hand.filter(isOffered);
    const open = hand.filter(isOpen);
    const forced = open.find(mustCome);
    if (forced || !open.length) return forced ?? null;
    const made = open.some(({ milliseconds }) => milliseconds);
    const isFull = open.length > (made ? MOST_MADE : MOST_IN_HAND);
    const all = open.map((sent) => ({ sent, spec: sent.header.spec, expected: ahead(sent) }));
    const worth = all.filter(({ expected }) => expected >= -BEHIND);
    // Candidates that this device compiles are tried as they come.  Before the first trial the source's order is used.
    const enough = made || !effects.size ? Math.min(least, 1) : least;
    if (worth.length < enough && !isFull) return null;
    if (!worth.length) return most(all, ({ expected }) => expected).sent;
    const saving = (/** @type {typeof all[number]} */ { spec, expected }) => shareNow(spec) * (1 - Math.exp(-expected));
    const hope = most(worth, saving);
    if (saving(hope) > SAVING) return hope.sent;
    const own = worth.filter(({ spec }) => spec === worth[0].spec);
    return most(own, ({ expected }, place) => expected - PLACE * place).sent;
  }

  return {
    take(sent) {
      const { spec, candidate } = sent.header;
      // After a reconnection a source may send untried candidates again.
      hand = hand.filter(({ header }) => header.spec !== spec || header.candidate !== candidate);
      if (isOpen(sent) || hand.filter((other) => other.header.spec === spec && !isOpen(other)).length < MOST_CLOSED) hand.push(sent);
    },

    next(least) {
      const chosen = choose(least);
      hand = hand.filter((sent) => sent !== chosen);
      return chosen;
    },

    peek: () => choose(1),

    waits: (sent) => !isOpen(sent) || (!mustCome(sent) && ahead(sent) < -BEHIND),

    held: (spec) => hand.filter((sent) => sent.header.spec === spec && isOffered(sent)).map(({ header: { candidate } }) => candidate),

    learn({ spec, candidate, schedule }, ratio) {
      const { count = Infinity } = ledger.offers.get(spec) ?? {};
      // The slow kernel of a gold question is not a candidate, and differs in every choice.
      if (candidate >= count || !Number.isFinite(Math.log(ratio))) return;
      shareNow(spec);
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
