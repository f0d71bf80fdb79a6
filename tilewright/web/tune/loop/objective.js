// What an objective asks of a candidate before it takes the place of the kernel in use.
// Input: the objective, what both need (docs/spaces.md: known without measuring).  Output: how much faster the candidate
// must be.  It measures nothing.
//
// With another objective than latency no swap trades one for the other: who needs less must be as fast, who needs as
// much must be faster, who needs more does not come in.

export const LATENCY = 'latency';
export const OBJECTIVES = [LATENCY, 'traffic', 'scratch'];

/** A candidate is adopted if the lower end of its ratio's interval is above this. */
const MARGIN = 1.01;
/** Who needs less is judged as if it were so many times as fast: it need not show a gain, only that it is no loss. */
const GRANT = 1.04;

/** A margin of infinity: it is not adopted, however fast. @type {Tune.BarOf} */
export function barOf(objective, needs, inUse) {
  const [its, present] = [needs, inUse].map((one) => one?.[objective] ?? NaN);
  // Of latency, and where one of the two is not known, neither holds.
  return { margin: its > present ? Infinity : MARGIN, grant: its < present ? GRANT : 1 };
}
