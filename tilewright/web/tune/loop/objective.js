// The bar that an objective sets for replacing the kernel in use.
// Input: the objective, the needs of both kernels (docs/spaces.md; known without measuring).  Output: the margin by
// which the candidate must be faster.  It measures nothing.
//
// Objectives other than latency never trade one for the other: a candidate that needs less must be as fast, one that
// needs the same must be faster, and one that needs more is never adopted.

export const LATENCY = 'latency';
export const OBJECTIVES = [LATENCY, 'traffic', 'scratch'];

/** The lower end of a candidate's ratio interval must exceed this. */
const MARGIN = 1.01;
/** Factor on the ratio of a candidate that needs less, so that it need not show a gain, only that it is no loss. */
const GRANT = 1.04;

/** An infinite margin means: never adopt, however fast. @type {Tune.BarOf} */
export function barOf(objective, needs, inUse) {
  const [its, present] = [needs, inUse].map((one) => one?.[objective] ?? NaN);
  // With latency as objective, or unknown needs, both are NaN and neither comparison holds.
  return { margin: its > present ? Infinity : MARGIN, grant: its < present ? GRANT : 1 };
}
