// The worker in which candidates of WebGPU are tried (judge.js), on a device of its own.

import * as bench from './gpu_memory.js';
import * as clock from './gpu_timing.js';
import { judge } from './judge.js';

judge(bench, clock);
