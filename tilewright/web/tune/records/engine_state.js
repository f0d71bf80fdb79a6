// What the tuner keeps of an engine while the page lives, in one object.
// Input: an engine.  Output: its object, always the same one, also after the engine was restarted in a new worker. device_record.js,
// persist.js, pace.js and guard.js set its fields.

/** The tuner's side of one engine of the page. */
class Tuned {
  /** Set by device_record.js: the record, which all code in this page shares; null until it is read, and after it was deleted. @type {Tune.TuningRecord | null} */
  record = null;

  /** Set by device_record.js: true if the record could not be stored, so that the one in memory is the only copy. */
  unstored = false;

  /** Set by persist.js: the record whose winners are in use; null while the bundle's own kernels are. @type {Tune.TuningRecord | null} */
  inUse = null;

  /** Set by pace.js: the tuner's listeners beside the page's `onjob`; null while there are none. @type {Tune.Hearers | null} */
  hearers = null;

  /** Set by guard.js: the guard of the engine's jobs. @type {import('../exchange/guard.js').Guard | null} */
  guard = null;
}

/** The only place where the tuner attaches anything to an engine. @type {WeakMap<T.Engine, Tuned>} */
const engines = new WeakMap();

/** @param {T.Engine} engine */
export function tunedOf(engine) {
  const known = engines.get(engine) ?? new Tuned();
  engines.set(engine, known);
  return known;
}
