// Waiting in bounded time.
// Input: milliseconds, promises.  Output: what the first of them gives, or LATE.

export const LATE = 'it does not answer';

/** Resolves with the first of the promises, or with LATE after `limit` milliseconds. @type {T.Within} */
export const within = (limit, ...promises) => Promise.race([...promises, new Promise((resolve) => setTimeout(resolve, limit, LATE))]);
