// The engine's worker for WebAssembly; serve.js is that of the pool.

import { answer } from './requests.js';
import { load } from './wasm.js';

answer(load);
