// The engine's worker for WebGPU, which no page loads that does not ask for it.

import { answer } from './requests.js';
import { load } from './webgpu.js';

answer(load);
