// The session's knowledge of a bundle's kernels: which candidates are offered, tried, measured and in use.
// Input: the device's record, offers, verdicts.  Output: answers by a kernel's number.  It measures and sends nothing.

/** Candidates with these verdicts must never run again. @type {Tune.Verdict[]} */
export const BAD = ['wrong', 'trapped', 'hung'];
/** Verdicts on candidates with correct results, by their times. @type {Tune.Verdict[]} */
export const RIGHT = ['faster', 'same', 'slower'];
/** The number of the compiler's own candidate, and the number that stands for a bundle's kernel outside its space. */
export const [COMPILERS, NONE] = [0, -1];

/** @param {Record<string, number[]>} map @param {number} spec */
const listed = (map, spec) => (map[spec] ??= []);

/** @type {Tune.OpenLedger} */
export function openLedger(record, digest, objective, believed = true) {
  // Verdicts depend on the objective.  With another one all candidates are tried again, except winners and bad ones.
  if (record.objective !== objective) {
    Object.assign(record, { objective, tried: structuredClone(record.bad) });
    for (const { spec, candidate } of record.winners) listed(record.tried, spec).push(candidate);
  }
  /** @type {Map<number, Tune.Offer>} */
  const offers = new Map();
  /** By kernel and candidate, ratios to the default that were measured and not reported yet. @type {Map<number, Map<number, number>>} */
  const ratios = new Map();
  /** By kernel, tried candidates that answer its gold question; not stored, so that the next visit can answer it too. @type {Record<string, number[]>} */
  const answered = {};
  const ratiosOf = (/** @type {number} */ spec) => ratios.get(spec) ?? ratios.set(spec, new Map()).get(spec) ?? new Map();

  return {
    record,
    offers,
    believed,

    winner: (spec) => record.winners.find((winner) => winner.spec === spec),

    /** The speed of the kernel in use over that of the bundle's own. */
    gain(spec) {
      return this.winner(spec)?.ratio ?? 1;
    },

    /** True if the gain was never measured: the winner is from another build, or replaced a wrong kernel. */
    unknown(spec) {
      return Boolean(this.winner(spec)?.moved) || this.refuted(spec);
    },

    /** Number of the bundle's own kernel; null if it is not in the space. */
    own(spec) {
      const offer = offers.get(spec);
      return offer ? offer.default : COMPILERS;
    },

    current(spec) {
      return this.winner(spec)?.candidate ?? this.own(spec);
    },

    /** Notes which kernel is in use; without a winner it is the bundle's own. */
    use(spec, winner) {
      record.winners = [...record.winners.filter((other) => other.spec !== spec), ...winner ? [winner] : []];
    },

    /**
     * True while the bundle's own kernel is not trusted: it won the vote of other devices, and the compiler's own candidate has not agreed
     * with it yet.  Only a source that is `believed` can cast such doubt on a kernel.
     */
    inQuestion: (spec) => believed && (offers.get(spec)?.default ?? NONE) !== COMPILERS && record.sound[spec] !== digest,

    refuted: (spec) => record.refuted[spec] === digest,

    tried: (spec) => [...listed(record.tried, spec), ...listed(answered, spec)],

    /** Tried candidates, for the hello.  The compiler's own is included only if it was compared with the kernel of this same build. */
    done(spec) {
      return this.tried(spec).filter((candidate) => candidate !== COMPILERS || record.sound[spec] === digest);
    },

    /** Notes a verdict; `ratio`: time of the default over time of the candidate. */
    note(spec, candidate, verdict, ratio) {
      const { gold, count = 0 } = offers.get(spec) ?? {};
      const answer = candidate === gold?.b && candidate >= count && !BAD.includes(verdict);
      const known = listed(answer ? answered : record.tried, spec);
      if (!known.includes(candidate)) known.push(candidate);
      if (BAD.includes(verdict)) {
        listed(record.bad, spec).push(candidate);
        // A bad candidate of the crowd is an answer to its question, even if nothing else was measured.
        if (candidate === gold?.b) ratiosOf(spec);
      } else if (RIGHT.includes(verdict) && ratio > 0) ratiosOf(spec).set(candidate, ratio);
    },

    agrees(spec) {
      record.sound[spec] = digest;
    },

    /** Notes that the bundle's own kernel is wrong: ratios to it do not count, and the report gives the compiler's an infinite ratio. */
    refute(spec) {
      record.refuted[spec] = digest;
      listed(record.bad, spec).push(offers.get(spec)?.default ?? NONE);
      ratios.set(spec, new Map([[COMPILERS, Infinity]]));
    },

    /** After a rollback: caps the measured ratios at this one. */
    humble(spec, most) {
      const found = ratiosOf(spec);
      for (const [candidate, ratio] of found) found.set(candidate, Math.min(ratio, most));
    },

    /** Ratios for a report, with winners of earlier visits and without bad candidates; null if there is nothing to report. */
    findings(spec) {
      const winner = this.winner(spec);
      const found = ratios.get(spec);
      if (!found || winner?.moved) return null;
      const all = winner ? new Map([[winner.candidate, winner.ratio], ...found]) : new Map(found);
      for (const candidate of record.bad[spec] ?? []) all.delete(candidate);
      return all;
    },

    told: (spec) => void ratios.delete(spec),

    untold: () => [...ratios.keys()],

    /** Takes offers.  Forgets candidate numbers of another space (another class or source); returns the kernels that had any. */
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
