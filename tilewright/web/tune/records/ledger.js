// What is known of a bundle's kernels: what was offered, tried, measured, and what is in use.
// Input: what the device keeps, offers, verdicts.  Output: answers by number of a kernel.  It measures and sends nothing.

/** Nothing with these verdicts may run again. @type {Tune.Verdict[]} */
const BAD = ['wrong', 'trapped', 'hung'];
/** It computes what the kernel in use does: only then its time counts. @type {Tune.Verdict[]} */
export const RIGHT = ['faster', 'same', 'slower'];
/** The compiler's own candidate, and a number for a bundle's kernel that is none of its space. */
export const [COMPILERS, NONE] = [0, -1];

/** @param {Record<string, number[]>} map @param {number} spec */
const listed = (map, spec) => (map[spec] ??= []);

/** @type {Tune.OpenLedger} */
export function openLedger(record, digest, objective) {
  // What one objective has no use for another one may want.  What is in use, and what must never run again, stays out.
  if (record.objective !== objective) {
    Object.assign(record, { objective, tried: structuredClone(record.bad) });
    for (const { spec, candidate } of record.winners) listed(record.tried, spec).push(candidate);
  }
  /** @type {Map<number, Tune.Offer>} */
  const offers = new Map();
  /** Of each kernel, the ratios to its default that were measured and not told yet. @type {Map<number, Map<number, number>>} */
  const ratios = new Map();
  /** Of each kernel, what answers its gold question: of this visit alone, as its ratio is. @type {Record<string, number[]>} */
  const answered = {};
  const ratiosOf = (/** @type {number} */ spec) => ratios.get(spec) ?? ratios.set(spec, new Map()).get(spec) ?? new Map();

  return {
    record,
    offers,

    winner: (spec) => record.winners.find((winner) => winner.spec === spec),

    /** How many times faster than the bundle's own the kernel in use is. */
    gain(spec) {
      return this.winner(spec)?.ratio ?? 1;
    },

    /** It came with another build, or because the bundle's own is wrong: nobody measured the two against each other. */
    unknown(spec) {
      return Boolean(this.winner(spec)?.moved) || this.refuted(spec);
    },

    /** Number of the bundle's own kernel; null if it is none of its space. */
    own(spec) {
      const offer = offers.get(spec);
      return offer ? offer.default : COMPILERS;
    },

    current(spec) {
      return this.winner(spec)?.candidate ?? this.own(spec);
    },

    /** Another kernel is in use; without a winner the bundle's own. */
    use(spec, winner) {
      record.winners = [...record.winners.filter((other) => other.spec !== spec), ...winner ? [winner] : []];
    },

    /** A relinked bundle runs what a crowd found: it is believed once the compiler's own candidate agrees. */
    inQuestion: (spec) => (offers.get(spec)?.default ?? NONE) !== COMPILERS && record.sound[spec] !== digest,

    refuted: (spec) => record.refuted[spec] === digest,

    tried: (spec) => [...listed(record.tried, spec), ...listed(answered, spec)],

    /** For hello: what was tried beside another bundle says nothing of this one's own kernel. */
    done(spec) {
      return this.tried(spec).filter((candidate) => candidate !== COMPILERS || record.sound[spec] === digest);
    },

    /** Notes what became of a candidate; `ratio` is over the default. */
    note(spec, candidate, verdict, ratio) {
      const answer = candidate === offers.get(spec)?.gold?.b && !BAD.includes(verdict);
      const known = listed(answer ? answered : record.tried, spec);
      if (!known.includes(candidate)) known.push(candidate);
      if (BAD.includes(verdict)) listed(record.bad, spec).push(candidate);
      else if (RIGHT.includes(verdict) && ratio > 0) ratiosOf(spec).set(candidate, ratio);
    },

    agrees(spec) {
      record.sound[spec] = digest;
    },

    /** The bundle's own kernel is wrong: nothing that was measured against it counts. */
    refute(spec) {
      record.refuted[spec] = digest;
      listed(record.bad, spec).push(offers.get(spec)?.default ?? NONE);
      ratios.delete(spec);
    },

    /** Nothing of this kernel was faster than this after all. */
    humble(spec, most) {
      const found = ratiosOf(spec);
      for (const [candidate, ratio] of found) found.set(candidate, Math.min(ratio, most));
    },

    /** What a report can say: winners of earlier visits count, what turned out bad does not. */
    findings(spec) {
      const winner = this.winner(spec);
      const found = ratios.get(spec);
      if (!found?.size || winner?.moved) return null;
      const all = winner ? new Map([[winner.candidate, winner.ratio], ...found]) : new Map(found);
      for (const candidate of record.bad[spec] ?? []) all.delete(candidate);
      return all;
    },

    told: (spec) => void ratios.delete(spec),

    untold: () => [...ratios.keys()],

    /** Takes offers.  Numbers of another space (another class, another source) say nothing here; gives the kernels that had some. */
    take(kernels) {
      const other = kernels.filter(({ spec, checksum }) => this.tried(spec).length && record.checksums[spec] !== checksum).map(({ spec }) => spec);
      for (const offer of kernels) {
        offers.set(offer.spec, offer);
        record.checksums[offer.spec] = offer.checksum;
      }
      for (const spec of other) {
        [record.tried, record.bad, record.sound, record.refuted, answered].forEach((map) => delete map[spec]);
        ratios.delete(spec);
      }
      return other;
    },
  };
}
