// The engine's worker for WebAssembly; its pool is in serve.js.

import { answer } from './requests.js';
import { load } from './wasm.js';

answer(load);
