// Notes what JavaScript does in a run on WebGPU, in Node and in a worker of a page.
// Input: a scope that has WebGPU, a function that tells the scope's time.  Output: `seen`, of the latest run.  It changes nothing
// but the prototypes of WebGPU, each call of which goes on as before.

/** Milliseconds in finish() and submit() since `begin`; when the run began to wait for the device, and when it went on; dispatches so far. */
export const seen = { dawn: 0, waits: 0, goes: 0, dispatches: 0 };

export const begin = () => (seen.dawn = 0);

/** @param {any} prototype @param {string} name @param {(call: () => any) => any} way */
function wrap(prototype, name, way) {
  const original = prototype[name];
  prototype[name] = function (/** @type {any[]} */ ...given) {
    return way(() => original.apply(this, given));
  };
}

/** From now on dispatches are not counted, since that takes time: what was seen are those of the first run. */
export let uncount = () => {};

export function spy() {
  const passes = GPUComputePassEncoder.prototype, dispatch = passes.dispatchWorkgroups;
  wrap(passes, 'dispatchWorkgroups', (call) => {
    seen.dispatches += 1;
    return call();
  });
  uncount = () => {
    passes.dispatchWorkgroups = dispatch;
  };
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
