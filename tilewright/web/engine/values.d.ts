// Types of tensors at the engine's API: inputs and outputs of a run; no browser fetches this file.

import type { Declared } from './manifest.js';

export type Bytes = Uint8Array<ArrayBuffer>;
export type TensorData =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Uint8ClampedArray | Int32Array | BigInt64Array;
/**
 * Elements of an input or state: a plain array, a typed array of its dtype, or one whose numbers the dtype can all represent: `Float16Array` for f32 (where the
 * browser has it); this or `Float32Array` for f64; `Int32Array` or `Uint32Array` for i64; `Uint8ClampedArray` for u8. f16 and bf16 accept their bits in a
 * `Uint16Array`, and `Float32Array` and plain arrays, which are rounded; f16 also accepts a `Float16Array`.
 */
export type InputData = ArrayLike<number> | ArrayLike<bigint> | ArrayLike<boolean>;
/** An input: a row-major array, with its shape if more than one dimension is open. */
export type Input = InputData | { data: InputData; shape: number[] } | FrameInput | BufferInput;
/**
 * A tensor on the device that the bundle was loaded on, in the layout of a typed array of its dtype, from byte `offset` on: f32, i32 or i64; or an f16 or bf16
 * output of a run, whose elements are f32 there.  The buffer has the usage COPY_SRC and may be longer than the tensor. `shape`: for inputs with open
 * dimensions.  The caller keeps the buffer and must not change it until the run has settled.
 */
export type BufferInput = GPUBuffer | (BufferPlace & { shape?: number[] });
export type BufferPlace = { buffer: GPUBuffer; offset?: number };
/** Outputs that go to buffers, by name. */
export type Targets = Record<string, Required<BufferPlace>>;
/** How a picture fills an input of another shape: stretched; whole, between black bars; or cropped. */
export type Fit = 'stretch' | 'contain' | 'cover';
/**
 * A picture for an f32 or f16 input [1, 3, h, w], [1, 1, h, w] (grey), [1, h, w, 3] or [1, h, w, 1]: each element is its colour,
 * from 0 to 1 in sRGB, times `scale` plus `bias` (one number, or one per channel).  It should be opaque.  `shape`: for inputs with
 * open dimensions.  The caller keeps `frame`: it stays open until the run has settled, and then the caller closes it.
 */
export type FrameInput = { frame: VideoFrame | ImageBitmap | HTMLVideoElement | HTMLImageElement | HTMLCanvasElement | OffscreenCanvas; scale?: number | ArrayLike<number>; bias?: number | ArrayLike<number>; fit?: Fit; shape?: number[] };
/** A checked input; `data` is a typed array, possibly the caller's own. */
export type Tensor = { data: any; shape: number[] };
/** A requested output; `data`: the caller's array for it; without it a new one is made. */
export type Wanted = { name: string; dtype: Declared; shape: number[]; data?: any };
/**
 * `data`: a row-major typed array of the dtype: for f16 a `Float16Array`, or the bits in a `Uint16Array` if the browser lacks it; for bf16 always the bits.
 * For an output that went to a buffer, its buffer and offset instead, which a run can take as an input.
 */
export type Output = { data: any; shape: number[]; dtype: Declared; buffer?: GPUBuffer; offset?: number };
