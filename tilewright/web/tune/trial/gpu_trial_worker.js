// The worker that tries candidates of WebGPU (judge.js), on its own device.

import { accept, ahead, beating, begin, check, compiled, lay, loaded, open, own, refutation, runAll, runnerFor, use } from './gpu_trial_memory.js';
import { finest, coldEstimate, pairsOf, warmEstimate, readClock, warm } from './gpu_timing.js';
import { judge } from './judge.js';

judge({
  get loaded() { return loaded; }, accept, ahead, beating, begin, check, compiled, lay, open, own, refutation, runAll, runnerFor, use,
}, { get finest() { return finest; }, coldEstimate, pairsOf, warmEstimate, readClock, warm });
