// The engine's worker for WebGPU; only pages that ask for that device load it.

import { answer } from './requests.js';
import { load } from './webgpu.js';

answer(load);
