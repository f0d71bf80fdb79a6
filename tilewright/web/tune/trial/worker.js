// The worker in which candidates of WebAssembly are tried (judge.js).

import { l1Bytes } from '../device/device.js';
import { breathe } from './breath.js';
import { judge } from './judge.js';
import * as bench from './memory.js';
import * as clock from './timing.js';

judge(bench, clock, {
  async l1() {
    await breathe();
    return l1Bytes();
  },
});
