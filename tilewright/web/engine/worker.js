// The engine's worker for WebAssembly; pool_worker.js is the pool's worker.

import { answer } from './requests.js';
import { load } from './wasm.js';

answer(load);
