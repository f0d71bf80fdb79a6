// Runs plans of a loaded bundle: one driver call per run, no JavaScript per kernel.
// Input: memory, plans, a driver instance.  It fetches nothing and does not check the caller's inputs.

import { CHECK, INDEX, STALLED, TRAPPED } from './abi.js';
import { stepOf, wordsOf } from './driver.js';
import { EngineError, outOfRange } from './errors.js';
import { readOutputs, sizesOf, writeInputs } from './tensors.js';

/** @type {T.MakeMachine} */
export function makeMachine(plans, memory, driver, threads, kernels = []) {
  const { buffer } = memory;
  const words = wordsOf(memory);

  /** @type {T.Call} */
  function call(plan, first = 0, last = plans[plan].steps.length) {
    const start = performance.now();
    let reason = 'in another worker';
    let code;
    try {
      code = driver.run(plans[plan].address, first, last, threads);
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      reason = error.message;
      Atomics.store(words, TRAPPED, words[stepOf(0)]);
      code = driver.abort(threads);
    }
    if (code) throw stopped(plan, code, reason);
    return performance.now() - start;
  }

  /** @type {T.Stopped} */
  function stopped(plan, code, trap) {
    const workers = Array.from({ length: threads }, (_, worker) => Atomics.load(words, stepOf(worker)));
    const number = (words[TRAPPED] || workers.find((step) => step > 0) || 0) - 1;
    const { steps, dims } = plans[plan];
    const { kernel, node, spec, checks = [] } = steps[number] ?? {};
    const tuned = kernels.some((other) => other.spec === spec);
    const where = `kernel ${kernel} of node ${node}`;
    const facts = { step: number, kernel, node, spec, tuned, plan: dims };
    if (code === STALLED) {
      return new EngineError('host', `Step ${number} stalled: ${where}; a pool worker may have died`,
        'The engine restarts it; the device may lack memory', { ...facts, threads });
    }
    const check = checks[Atomics.exchange(words, CHECK, 0) - 1];
    if (check) return outOfRange(check, words[INDEX], words[INDEX + 1], facts);
    return new EngineError('kernel-trap', `Step ${number} stopped: ${where} (${trap})`, 'Check the inputs. The engine can be used again', { ...facts, trap });
  }

  return {
    take({ plan, sizes, tensors }) {
      sizesOf(plans[plan], sizes).forEach((size, extent) => driver.resize(plans[plan].address, extent, size));
      if (tensors) writeInputs(buffer, plans[plan].inputs, tensors);
    },

    call,

    run({ wanted, ...work }) {
      this.take(work);
      const milliseconds = call(work.plan);
      return { milliseconds, outputs: wanted && readOutputs(buffer, plans[work.plan].outputs, wanted) };
    },
  };
}
