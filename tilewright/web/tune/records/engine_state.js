// What the tuner keeps of an engine while the page lives, in one object.
// Input: an engine.  Output: its object, always the same one: the page's engine outlives new starts in new workers, and so
// does this.  It does nothing itself: device_record.js, persist.js, pace.js and guard.js fill in its fields.

/** The tuner's side of one engine of the page. */
class Tuned {
  /** Of device_record.js: the one record that all code in this page shares; null until it is read, and after it was deleted. @type {Tune.TuningRecord | null} */
  record = null;

  /** Of device_record.js: the record could not be stored, so the one in memory is the only copy. */
  unstored = false;

  /** Of persist.js: the record whose winners are in use; null while they are the bundle's own kernels. @type {Tune.TuningRecord | null} */
  inUse = null;

  /** Of pace.js: the tuner's listeners beside the page's `onjob`; null while there are none. @type {Tune.Hearers | null} */
  hearers = null;

  /** Of guard.js: what looks after its jobs. @type {import('../exchange/guard.js').Guard | null} */
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
