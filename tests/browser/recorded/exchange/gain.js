// Stands in for tune/exchange/gain.js: the figure is the recorded session's, once the test lets it come.

/** @param {any} _engine @param {{signal: AbortSignal}} options */
export async function measureGain(_engine, { signal }) {
  if (!signal.aborted) await new Promise((resolve) => {
    signal.addEventListener('abort', resolve);
    setTimeout(resolve, globalThis.pace ?? 2);
  });
  if (signal.aborted) return { verdict: 'unknown', text: 'gain not measured: it was cancelled' };
  return (await (await fetch('/events.json')).json()).at(-1).summary.gain;
}
