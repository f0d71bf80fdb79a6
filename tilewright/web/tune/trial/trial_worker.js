// The worker that tries candidates of WebAssembly (judge.js).

import { l1Bytes } from '../device/device_class.js';
import { beating, yieldNow } from './yielding.js';
import { judge } from './judge.js';
import { accept, begin, check, compiled, lay, loaded, open, own, refutation, runAll, runnerFor, use } from './trial_memory.js';
import { finest, coldEstimate, pairsOf, warmEstimate, readClock, warm } from './timing.js';

// No `import *`: bundlers would make a separate file for it.
judge({
  get loaded() { return loaded; }, accept, beating, begin, check, compiled, lay, open, own, refutation, runAll, runnerFor, use,
}, { get finest() { return finest; }, coldEstimate, pairsOf, warmEstimate, readClock, warm }, {
  async l1() {
    await yieldNow();
    return l1Bytes();
  },
});
