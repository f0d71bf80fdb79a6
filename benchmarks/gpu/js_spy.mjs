// Notes what JavaScript does in a run on WebGPU, in Node and in a worker of a page.
// Input: a scope that has WebGPU, a function that tells the scope's time.  Output: `seen`, of the latest run.  It changes nothing
// but the prototypes of WebGPU, each call of which goes on as before.

/** Milliseconds in finish() and submit() since `begin`; when the run began to wait for the device, and when it went on; dispatches so far. */
export const seen = { dawn: 0, waits: 0, goes: 0, dispatches: 0 };

export const begin = () => (seen.dawn = 0);

/**
 * Puts a way around a method; what it returns takes it away again.
 * @param {any} prototype @param {string} name @param {(call: () => any, of: any, given: any[]) => any} way
 */
function wrap(prototype, name, way) {
  const original = prototype[name];
  prototype[name] = function (/** @type {any[]} */ ...given) {
    return way(() => original.apply(this, given), this, given);
  };
  return () => {
    prototype[name] = original;
  };
}

/** Calls that record a dispatch. */
const RECORD = /** @type {const} */ (['setPipeline', 'setBindGroup', 'dispatchWorkgroups']);
/** From now on these are not noted, since that takes time: what was seen are those of the first run. */
export let uncount = () => {};
/** Calls of the first run, in their order, and the device that they were for. @type {{calls: {name: typeof RECORD[number], given: any[]}[], device: any}} */
const first = { calls: [], device: null };

/** Milliseconds that the calls of the first run take which record its dispatches, made anew by nobody but this loop. */
export function bare() {
  const encoder = first.device.createCommandEncoder();
  const start = performance.now();
  const pass = encoder.beginComputePass();
  for (const { name, given } of first.calls) pass[name](...given);
  pass.end();
  return performance.now() - start;
}

export function spy() {
  const noted = RECORD.map((name) => wrap(GPUComputePassEncoder.prototype, name, (call, _, given) => {
    seen.dispatches += name === 'dispatchWorkgroups' ? 1 : 0;
    first.calls.push({ name, given });
    return call();
  }));
  noted.push(wrap(GPUDevice.prototype, 'createCommandEncoder', (call, device) => {
    first.device = device;
    return call();
  }));
  uncount = () => noted.forEach((unwrap) => unwrap());
  const counted = (/** @type {() => any} */ call) => {
    const start = performance.now();
    const value = call();
    seen.dawn += performance.now() - start;
    return value;
  };
  wrap(GPUQueue.prototype, 'submit', counted);
  wrap(GPUCommandEncoder.prototype, 'finish', counted);
  wrap(GPUBuffer.prototype, 'mapAsync', async (call) => {
    const mapped = call();
    seen.waits = performance.now();
    await mapped;
    seen.goes = performance.now();
  });
}
