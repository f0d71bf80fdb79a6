// The caller's GPU buffers as inputs and outputs, if the engine runs on the caller's device (gpu_in_thread.js); loaded on demand.
// Input: a run's inputs and `into`, some of them GPUBuffers.  Output: the run's result; or an `input` error. gpu_tensors.js checks and
// copies them.

import { EngineError } from './errors.js';
import { elementsOf, inMemory, requireKnown } from './tensors.js';

/** A given buffer with its offset; null if something else was given. @type {T.BufferIn} */
const bufferIn = (given) => (given?.mapState ? { buffer: given, offset: 0 } : given?.buffer?.mapState ? { ...given, offset: given.offset ?? 0 } : null);

/** @type {T.RunOn} */
export async function runOn(run, info, inputs, { into = {}, ...options }, { here }) {
  /** @type {Record<string, any>[]} */
  const [taken, arrays, to] = Array.from({ length: 3 }, () => Object.create(null));
  for (const [name, given] of Object.entries(inputs ?? {})) {
    const found = bufferIn(given);
    taken[name] = found ? inputOf(requireKnown(name, info.inputs, 'input'), found) : given;
    if (found) requireHere(name);
  }
  for (const [name, given] of Object.entries(into)) {
    const found = bufferIn(given);
    // The output of an earlier run has its own shape.
    (found ? to : arrays)[requireKnown(name, info.outputs, 'output').name] = found ? { buffer: found.buffer, offset: found.offset } : given;
    if (found) requireHere(name);
  }
  return run(taken, { ...options, into: arrays, to });

  /** @param {string} name */
  function requireHere(name) {
    if (here) return;
    const where = info.adapter ? 'in a worker, on a device of its own' : 'on WebAssembly';
    throw new EngineError('input', `'${name}' cannot be a GPUBuffer: the engine runs ${where}`, 'Load the bundle on the device that made the buffer: load(url, { device }); or use an array', { input: name, device: info.device });
  }
}

/** @type {T.BufferInputOf} */
function inputOf({ name, dtype, shape: declared }, { buffer, offset, shape = declared, dtype: its = inMemory(dtype) }) {
  // The output of another run states its type; other buffers could hold any kind of numbers.
  if (its !== dtype) throw new EngineError('input', `Input '${name}' is ${dtype}, and the buffer has ${its}`, 'Give an array, or a buffer with elements of the input: of f16 and bf16 an output of a run', { input: name, expected: dtype, dtype: its });
  const sizes = /** @type {number[]} */ ([...shape]);
  // A buffer may be longer than its tensor.
  if (!sizes.every(Number.isInteger)) {
    throw new EngineError('input', `Input '${name}' has open dimensions: [${shape.join(', ')}]`, 'Give the shape: {buffer, shape}', { input: name, expected: declared });
  }
  return { shape: sizes, data: { from: { buffer, offset }, length: elementsOf(sizes) } };
}
