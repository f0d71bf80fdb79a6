// Types of the npm package's entry `tilewright-web/language`, which is language.js.

import type { Manifest } from '../engine/types.js';
import type { LanguageModel, ModelOptions } from './types.js';

export type * from './types.js';
export { EngineError } from '../engine/errors.js';

/** Loads a bundle and its text files.  Rejects with an EngineError, or with the reason of `signal`. */
export function languageModel(url: string | URL, options?: ModelOptions): Promise<LanguageModel>;

/** Whether a bundle is a language model with its text files, by its manifest, which `inspect` reads. */
export function isLanguageModel(manifest: Pick<Manifest, 'inputs' | 'assets'>): boolean;
