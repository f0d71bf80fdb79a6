// Types of language models in the page; no browser fetches this file.  The files of this folder refer to them as Language.Name.

import type { Manifest } from '../engine/manifest.js';
import type { Engine, LoadOptions } from '../engine/types.js';

export as namespace Language;

/** Loads a bundle and its text files.  Rejects with an EngineError, or with the reason of `signal`. */
export type LanguageModelOf = (url: string | URL, options?: ModelOptions) => Promise<LanguageModel>;
/** As those of `load`. */
export type ModelOptions = LoadOptions;

/** `role`: system, user, assistant, or what else the model's chat template knows. */
export type Message = { role: string; content: string };

/** How a token is chosen, as in tilewright/language/sampling.py.  The same seed draws the same tokens there and here. */
export type Sampling = {
  /** 0, the default, takes the likeliest token. */
  temperature?: number;
  /** The number of likeliest tokens to choose from; 0: all; default 40. */
  topK?: number;
  /** Of these, the fewest likeliest tokens whose probabilities add up to this; default 0.95. */
  topP?: number;
  /** Of these, tokens with at least this share of the likeliest token's probability; default 0.05. */
  minP?: number;
  /** Logits of tokens among the last `recent` are divided by it, negative logits multiplied; default 1. */
  penalty?: number;
  /** Default 64. */
  recent?: number;
  /** An integer; default 0. */
  seed?: number;
  /** Is subtracted from a token's logit for each time that the answer has it; default 0. */
  frequencyPenalty?: number;
  /** Is subtracted once from logits of tokens that the answer has; default 0. */
  presencePenalty?: number;
  /** What is added to logits, by id, after all penalties. */
  logitBias?: Record<number, number>;
};

export type AnswerOptions = Sampling & {
  /** The largest number of new tokens; default: until the caches are full. */
  most?: number;
  /** Texts that end the answer; they are not shown. */
  stop?: string | string[];
  /** A JSON schema that the answer fits (docs/language-in-pages.md); an answer that `most` or the context cuts is the beginning of one that fits. */
  schema?: JsonSchema;
  /** Aborts the answer, which rejects with the signal's reason. */
  signal?: AbortSignal;
};

/** Why an answer ended: by a token of the model, by a stop string, because of `most`, by `signal` or an error, because the caches were full, because there was no memory for caches of more tokens. */
export type Ended = 'end' | 'stop' | 'most' | 'aborted' | 'context' | 'memory';

/** An answer that is being made.  Iterate over it once, with `for await`, for its pieces of text. */
export interface Answer extends AsyncIterable<string> {
  /** All text so far. */
  readonly text: string;
  /** Tokens of the answer, the one that ended it included. */
  readonly ids: readonly number[];
  /** Null until the answer has ended. */
  readonly ended: Ended | null;
  /** Tokens of the prompt, and how many of them the caches held already. */
  readonly promptTokens: number;
  readonly reusedTokens: number;
  /** Milliseconds until the first token, and from the first token to the last. */
  readonly firstMilliseconds: number;
  readonly milliseconds: number;
  /** Tokens a second after the first one; 0 if there are none. */
  readonly speed: number;
}

export type SpeechOptions = {
  /** The code of what is spoken, such as `en`, for models that know several languages; by default it is heard. */
  language?: string;
  /** `translate`: into English, whatever is spoken; default `transcribe`. */
  task?: 'transcribe' | 'translate';
  /** Aborts the transcript, which rejects with the signal's reason. */
  signal?: AbortSignal;
};

/** What is said in a recording; it is made while it is read, like every answer, and its ids are those of the text. */
export interface Transcript extends Answer {
  /** The code of the language, once it is known; '' of a model that knows one language. */
  readonly language: string;
  /** Seconds of the recording. */
  readonly duration: number;
}

/** A model goes on with a prompt, writes a new text from it, or writes what is said in a recording. */
export type Kind = 'decoder' | 'encoder-decoder' | 'speech';

/** A language model on a device.  It writes one answer at a time. */
export interface LanguageModel {
  /** The model's name, as its file has it. */
  readonly name: string;
  readonly kind: Kind;
  /**
   * Tokens that the caches hold: prompt and answer together; those of the prompt, if the model is an encoder-decoder; those of the text of 30 seconds,
   * if it is a speech model.
   */
  readonly context: number;
  /** Whether the model answers messages; without a chat template it does not. */
  readonly chats: boolean;
  readonly engine: Engine;
  /**
   * The answer to messages.  Throws `input` for an encoder-decoder model, as `complete` does.  Iterating rejects with an EngineError, or with the reason of `signal`: `context-full` if the prompt is too long or the caches are
   * full, `input` for messages that the template refuses, `invalid-model` for a template that fails or takes too long.  The model can be used again afterwards.
   */
  chat(messages: readonly Message[], options?: AnswerOptions): Answer;
  /** The text that follows a prompt. */
  complete(prompt: string, options?: AnswerOptions): Answer;
  /** What a model writes from the prompt.  Throws `input` for a speech model. */
  generate(prompt: string, options?: AnswerOptions): Answer;
  /**
   * What is said in a recording of any length: samples of one channel and 16 kHz, from -1 to 1, as
   * `new AudioContext({ sampleRate: 16000 }).decodeAudioData(bytes)` makes them.  Throws `input` for a model of another kind, for a language or task that
   * the model does not know, and for no samples.
   */
  transcribe(recording: ArrayLike<number>, options?: SpeechOptions): Transcript;
  /** Tokens of a chat's prompt, or of a text. */
  count(text: readonly Message[] | string): Promise<number>;
  /** Ends the workers and frees their memory. */
  dispose(): void;
}

/** What language.json says (docs/language-models.md). */
export type Description = {
  name: string;
  template: string | null;
  /** Tokens that templates name, such as `bos_token`. */
  texts: Record<string, string>;
  /** Ids that end an answer. */
  ends: number[];
  /** The id that texts begin with. */
  begin: number | null;
  /** The id that prompts end with. */
  close: number | null;
  /** Ids that answers of an encoder-decoder model begin with. */
  starts: number[];
  /** How a token's text becomes bytes: each character is a byte by GPT-2's table, or as SentencePiece has it. */
  pieces: 'bytes' | 'spaces';
  /** Of a model that writes what is said. */
  speech: Speech | null;
};
/** Facts of a speech model, as docs/bundle.md has them; all numbers but `rate` are ids. */
export type Speech = {
  rate: number;
  start: number;
  plain: number;
  languages: Record<string, number>;
  tasks: Record<string, number>;
  never: number[];
  neverFirst: number[];
  silence: number | null;
};
/** The part of tokenizer.json that is read here. */
export type TokenizerFile = {
  model: { vocab: Record<string, number> | [string, number][]; unk_token?: string | null };
  added_tokens?: { id: number; content: string; special: boolean }[];
};
/** The bytes of all tokens; those of token `n` are from `starts[n]` to `starts[n + 1]`. */
export type Pieces = { bytes: Uint8Array; starts: Uint32Array };
/** The two assets of a bundle. */
export type TextFiles = { tokenizer: ArrayBuffer; language: ArrayBuffer };

/** Text to ids, in this thread (text.js). */
export interface Text {
  readonly description: Description;
  readonly pieces: Pieces;
  /** The prompt of a chat, or the text itself, as ids. */
  encode(text: readonly Message[] | string): number[];
}
/** The same in a worker (text_thread.js). */
export interface TextThread {
  readonly description: Description;
  readonly pieces: Pieces;
  encode(text: readonly Message[] | string, signal?: AbortSignal): Promise<number[]>;
  /** The tokens in the order of their bytes. */
  order(signal?: AbortSignal): Promise<OrderedTokens>;
  close(): void;
}
export type Request = { id: number; files?: TextFiles; text?: readonly Message[] | string; ordered?: boolean };

/** Names of control tokens in texts (control_tokens.js). */
export type ControlTokens = {
  /** The text with seals for names. */
  sealed(text: string): string;
  /** The messages with stand-ins in names, and what gives a text its characters back. */
  hidden(messages: readonly Message[], template: string): { messages: Message[]; shown: (text: string) => string };
};
export type ControlTokensOf = (names: ReadonlyMap<string, number>, words: readonly string[]) => ControlTokens;
/** The tokenizer: texts with seals to ids. */
export type Cut = { control: ControlTokens; idsOf: (text: string) => number[] };
export type CutterOf = (file: TokenizerFile, kind: Description['pieces']) => Cut;
export type CharactersOf = (name: string, kind: Description['pieces'], model: TokenizerFile['model']) => number[];

/** A part of a grammar (json_matcher.js).  Equal parts are one object. */
export type Part = { id: number } & (
  | { kind: 'nothing' }
  | { kind: 'bytes'; ranges: readonly (readonly [number, number])[] }
  | { kind: 'pair'; part: Part; rest: Part }
  | { kind: 'either'; parts: readonly Part[] }
  | { kind: 'repeat'; part: Part; least: number; most: number }
  | { kind: 'later'; made: () => Part }
);
/** What must follow; both null at the end of the text. */
export type Following = { id: number; part: Part | null; rest: Following | null };
/** A byte that may come next, and what follows it. */
export type Place = { part: Extract<Part, { kind: 'bytes' }>; rest: Following };
/** `ends`: the text may end here; `after`: the states after each byte, as far as they are known. */
export type TextState = { places: readonly Place[]; ends: boolean; after: (TextState | null)[] };
/** Ids in the order of their bytes; `common`: how many bytes each shares with the one before. */
export type OrderedTokens = Pieces & { order: Uint32Array; common: Uint32Array };
export type TokensInOrder = (pieces: Pieces) => OrderedTokens;
/** A JSON schema; what else it may hold is checked. */
export type JsonSchema = Record<string, unknown>;
export type GrammarOf = (schema: unknown) => { grammar: import('./json_matcher.js').Grammar; root: Part };

export type OpenText = (files: TextFiles) => Text;
export type OpenTextThread = (read: () => Promise<TextFiles>, patience?: number) => Promise<TextThread>;
export type PromptOf = (description: Pick<Description, 'template' | 'texts'>, messages: readonly Message[]) => string;
export type PiecesOf = (file: TokenizerFile, kind: Description['pieces']) => Pieces;
/** Facts of a speech model in language.json, checked; null if there are none. */
export type SpeechOf = (found: unknown) => Speech | null;
/** What an answer is told of its prompt. */
export type Told = (promptTokens: number, reusedTokens: number) => void;
/** `last`: it ends the answer; `whole`: the answer ends with its text. */
export type Token = { id: number; last: boolean; whole?: boolean };
export type How = { signal?: AbortSignal; most: number; choose: Choose; schema?: JsonSchema };
export type Alone = (signal: AbortSignal | undefined, made: () => AsyncGenerator<Token, void>) => AsyncGenerator<Token, void>;
/** `heard` is told the language; `ran` is called after each run. */
export type HowHeard = {
  speech: Speech; ends: readonly number[]; language: string; task: string; signal?: AbortSignal; heard: (code: string) => void; ran: () => void;
};
export type Heard = (samples: Float32Array, how: HowHeard) => AsyncGenerator<Token, void>;
export type FromSound = (engine: Engine, samples: Float32Array, how: HowHeard) => AsyncGenerator<number, void>;
export type WindowsOf = (samples: Float32Array, size: number, rate: number) => [number, number][];
export type Tokens = (text: readonly Message[] | string, how: How, told: Told) => AsyncGenerator<Token, void>;
export type After = (prompt: number[], how: How, told: Told) => AsyncGenerator<Token, void>;
export type ContextOf = (manifest: Pick<Manifest, 'inputs' | 'dims'> & { states: { name: string; shape: number[] }[] }) => number;
export type KindOf = (manifest: Pick<Manifest, 'inputs' | 'dims'>) => Kind;
export type SizesOf = (manifest: Pick<Manifest, 'inputs' | 'dims'>, name: string) => number[];
/** Runs tokens from one number up to another; gives the logits of the last one. */
export type RunTokens = (from: number, count: number) => Promise<ArrayLike<number>>;
/** `held`: whether the states are of this prompt; `starts`: ids that the answer begins with; `end`: ids that end it. */
export type FromPrompt = (
  engine: Engine, prompt: readonly number[],
  how: { signal?: AbortSignal; most: number; starts: readonly number[]; end: readonly number[]; held: boolean; choose: (logits: ArrayLike<number>) => number },
) => AsyncGenerator<number, void>;
/** `isNew`: it does not go on with another text; `outcome`: why it ends behind its last token. */
export type WritingParts = { pieces: Pieces; isNew: boolean; stops: string[]; outcome: Ended; tokens: (told: Told) => AsyncGenerator<Token, void> };
/** Chooses an id from logits, given the ids so far; `allowed` has ones for ids that may come. */
export type Choose = (logits: ArrayLike<number>, ids: readonly number[], allowed?: Uint8Array) => number;
export type Adjuster = (sampling: Required<Sampling>) => (logits: ArrayLike<number>, ids: readonly number[], counts: ReadonlyMap<number, number>) => ArrayLike<number>;
export type Sampler = (sampling: Required<Sampling>) => Choose;
/** Indices of the `count` largest numbers, largest first; of equal ones the first. */
export type Largest = (values: ArrayLike<number>, count: number) => number[];
