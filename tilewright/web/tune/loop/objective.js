// The condition under which a candidate may replace the kernel in use, by the objective.
// Input: the objective, the needs of both kernels (docs/spaces.md; known without measuring).  Output: the margin by which the candidate
// must be faster.  Nothing is measured here.
//
// For objectives other than latency, neither latency nor the objective's resource may get worse: a candidate that needs less must be as
// fast, one that needs the same must be faster, and one that needs more is never adopted.

export const LATENCY = 'latency';
export const OBJECTIVES = [LATENCY, 'traffic', 'scratch'];

/** The lower end of a candidate's ratio interval must exceed this. */
const MARGIN = 1.01;
/** A factor on the ratio of a candidate that needs less: it need not be faster, only not slower. */
const GRANT = 1.04;

/** An infinite margin means: never adopt, at any speed. @type {Tune.BarOf} */
export function barOf(objective, needs, inUse) {
  const [its, present] = [needs, inUse].map((one) => one?.[objective] ?? NaN);
  // With latency as objective, or unknown needs, both are NaN and neither comparison holds.
  return { margin: its > present ? Infinity : MARGIN, grant: its < present ? GRANT : 1 };
}
