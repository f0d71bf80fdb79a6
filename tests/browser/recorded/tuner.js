// Stands in for tune/tuner.js: gives the events of a recorded session, one for each candidate that the source gives.

/** @param {any} engine @param {any} options */
export async function tune(engine, { source, signal, onEvent, budget, report }) {
  globalThis.asked = { name: engine.info.name, budget, report };
  const { session = '/events.json' } = globalThis;
  const response = await fetch(session);
  if (!response.ok) throw new Error('The tuner cannot reach its server');
  for (const event of await response.json()) {
    if (event.type === 'trial') {
      const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
      await Promise.race([source.next(), stopped]);
    }
    if (signal.aborted) return { cancelled: true };
    onEvent(event);
  }
  source.close();
  return { cancelled: false };
}
