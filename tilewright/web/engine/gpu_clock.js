// Stamps of the device's clock around compute passes, which their results follow in the same submission.
// Input: a device with `timestamp-query`.  Output: T.Stamps.  It records no pass.

/** Two numbers of 64 bits for each of so many passes; WebGPU allows 2048. @type {T.StampsOf} */
export function stampsOf(device, passes) {
  const set = device.createQuerySet({ type: 'timestamp', count: 2 * passes });
  const into = device.createBuffer({ size: 16 * passes, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  return {
    passes, into,
    writes: (number) => ({ querySet: set, beginningOfPassWriteIndex: 2 * number, endOfPassWriteIndex: 2 * number + 1 }),
    resolve: (encoder) => encoder.resolveQuerySet(set, 0, 2 * passes, into, 0),
  };
}
