// Samples pictures into the model's memory on the GPU: as external textures, or as copies in browsers without these.
// Input: a device, its memory; places of inputs and VideoFrames for them.  Output: the inputs in memory.

import { EngineError } from './errors.js';
import { elementsOf } from './tensors.js';
import { WORD } from './gpu_device.js';

const GROUP = 8;

/**
 * Positions outside of the picture are black; `steps`: words between neighbouring channels, rows and columns, and whether the input is f16.
 */
const CODE = `
struct Picture { box: vec4f, scale: vec4f, bias: vec4f, size: vec4u, steps: vec4u }
@group(0) @binding(0) var<storage, read_write> memory: array<f32>;
@group(0) @binding(1) var<uniform> picture: Picture;
@group(0) @binding(2) var frame: TEXTURE;
@group(0) @binding(3) var linear: sampler;

@compute @workgroup_size(${GROUP}, ${GROUP})
fn main(@builtin(global_invocation_id) at: vec3u) {
  if (at.x >= picture.size.x || at.y >= picture.size.y) { return; }
  let place = (vec2f(at.xy) + 0.5 - picture.box.xy) / picture.box.zw;
  let inside = all(place >= vec2f(0)) && all(place <= vec2f(1));
  let sampled = textureSampleBaseClampToEdge(frame, linear, place).rgb;
  var colour = select(vec3f(0), sampled, inside);
  if (picture.size.z == 1) { colour = vec3f(dot(colour, vec3f(0.299, 0.587, 0.114))); }
  let first = picture.size.w + at.y * picture.steps.y + at.x * picture.steps.z;
  for (var channel = 0u; channel < picture.size.z; channel++) {
    let value = colour[channel] * picture.scale[channel] + picture.bias[channel];
    memory[first + channel * picture.steps.x] = select(value, quantizeToF16(value), picture.steps.w == 1);
  }
}`;

/** @type {T.FrameTaker} */
export async function frameTaker(device, memory) {
  const linear = device.createSampler({ magFilter: 'linear', minFilter: 'linear' });
  const uniform = device.createBuffer({ size: 80, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  const pipelineFor = async (/** @type {string} */ type) => device.createComputePipelineAsync({
    layout: 'auto', compute: { module: device.createShaderModule({ code: CODE.replace('TEXTURE', type) }), entryPoint: 'main' },
  });
  // Firefox may have the function although its driver has no such textures.
  const external = 'importExternalTexture' in device ? await pipelineFor('texture_external').catch(() => null) : null;
  /** The pipeline for copies, and the texture of the last frame. @type {Promise<GPUComputePipeline> | undefined} */
  let copying;
  /** @type {GPUTexture | undefined} */
  let copy;

  /** @type {(pixels: VideoFrame) => Promise<[GPUComputePipeline, GPUBindingResource]>} */
  async function textureOf(pixels) {
    try {
      if (external) return [external, device.importExternalTexture({ source: pixels })];
    } catch {
      // Fails in Chromium if it draws with another driver.
    }
    const pipeline = await (copying ??= pipelineFor('texture_2d<f32>'));
    const bitmap = await createImageBitmap(pixels);
    const { width, height } = bitmap;
    if (copy?.width !== width || copy.height !== height) {
      copy?.destroy();
      copy = device.createTexture({ size: [width, height], format: 'rgba8unorm', usage: GPUTextureUsage.TEXTURE_BINDING | GPUTextureUsage.COPY_DST | GPUTextureUsage.RENDER_ATTACHMENT });
    }
    device.queue.copyExternalImageToTexture({ source: bitmap }, { texture: copy }, [width, height]);
    bitmap.close();
    return [pipeline, copy.createView()];
  }

  return async ({ name, declared, address, shape: padded }, shape, { pixels, width, height, channels, last, scale, bias, box }) => {
    // A repeated run has closed its frame; the picture is still in memory.
    if (!pixels) return;
    const words = new ArrayBuffer(80);
    new Float32Array(words).set([...box, ...four(scale), ...four(bias)]);
    const row = elementsOf(padded.slice(3));
    const [outer, inner] = [elementsOf(padded.slice(2)), row];
    const steps = last ? [1, outer, inner] : [outer, inner, 1];
    new Uint32Array(words).set([width, height, channels, address / WORD, ...steps, Number(declared === 'f16')], 12);
    const [pipeline, texture] = await textureOf(pixels).catch((error) => {
      pixels.close();
      throw new EngineError('input', `The frame of input '${name}' cannot be a texture: ${error.message}`, 'Give an array, or use device wasm', { input: name });
    });
    device.queue.writeBuffer(uniform, 0, words);
    const encoder = device.createCommandEncoder();
    if (shape.some((size, axis) => size !== padded[axis])) encoder.clearBuffer(memory, address, elementsOf(padded) * WORD);
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [{ buffer: memory }, { buffer: uniform }, texture, linear].map((resource, binding) => ({ binding, resource })),
    }));
    pass.dispatchWorkgroups(Math.ceil(width / GROUP), Math.ceil(height / GROUP));
    pass.end();
    device.queue.submit([encoder.finish()]);
    pixels.close();
  };
}

/** @param {number[]} numbers */
const four = (numbers) => [0, 1, 2, 3].map((at) => numbers[at] ?? 0);
