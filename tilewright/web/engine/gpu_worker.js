// The engine's worker for WebGPU, loaded only by pages that ask for that device.

import { answer } from './requests.js';
import { load } from './webgpu.js';

answer(load);
