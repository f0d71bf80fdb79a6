"""Every benchmark: what it measures, how long a run takes and what it needs.

Output: `CATALOGUE` by name, in the order of the list.  The runner takes names from it, and
`benchmarks.report` makes the tables of README.md of it.  It imports no benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """A line of the list.

    name:     the folder and the file in it: "wasm.kernels" is wasm/kernels.py
    measures: what its result is
    takes:    about how long a run with default options takes, files that it makes once aside
    needs:    beside Python;  usage: the arguments that have no default
    key:      fields: a new row replaces stored ones with equal values of these, others stay;
              "": a run replaces all rows
    """

    name: str
    measures: str
    takes: str
    needs: str = ""
    usage: str = ""
    key: str = ""


_ALL = (
    # ---- kernels in WebAssembly
    Benchmark("wasm.kernels", "K0 to K3 as a share of the multiply-add peak", "5 min",
              needs="browsers"),
    Benchmark("wasm.gemm", "matrix products of every aspect ratio as a share of the peak",
              "10 min", needs="browsers"),
    Benchmark("wasm.rows", "row-wise kernels and attention: ns per element, GB/s", "5 min",
              needs="browsers"),
    Benchmark("wasm.passes", "cost and gain of the three Wasm passes of nnJIT (its table 5), and "
              "clang on C of the same loops", "20 min", needs="browsers, Node, clang",
              key="host kernel set"),
    Benchmark("wasm.near_peak", "K0 and K1 by several register tiles, as a share of the peak",
              "10 min", needs="browsers", key="host kernel label device cpu"),
    Benchmark("wasm.chained", "code for wasmtime's compiler over code for browsers, on wasmtime",
              "5 min", key="kernel cpu"),
    Benchmark("wasm.threads", "speed-up by threads: empty steps, small products, K0, K1, models",
              "10 min", needs="browsers", usage="--model RoBERTa.onnx"),
    # ---- whole models in browsers
    Benchmark("models.load", "time to load, first run and peak memory on a first visit and on "
              "later ones, beside onnxruntime-web", "15 min", needs="Chromium, models",
              usage="--models dist/models"),
    Benchmark("models.second_visit", "whether Chromium keeps a bundle's optimised code between "
              "visits, and what that saves", "5 min", needs="Chromium", usage=".demo/bundle",
              key="subject habit visit"),
    Benchmark("models.agreement", "relative error against onnxruntime in every host", "5 min",
              needs="browsers", usage="MODEL.onnx"),
    Benchmark("models.sizes", "bytes of the engine, minified and gzipped, and of a bundle's code",
              "10 s", needs="Node", usage=".demo/bundle"),
    Benchmark("models.public", "nothing: it fetches the public models that other benchmarks use",
              "1 min", needs="network", usage="dist/public"),
    # ---- beside other engines
    Benchmark("peers.browsers", "Tilewright, onnxruntime-web, LiteRT.js, TF.js and jax-js by "
              "turns in one browser: kernels and models", "2 h", needs="Chromium, npm, models",
              usage="--models dist/models", key="case browser engine threads"),
    Benchmark("peers.webgpu", "Tilewright, onnxruntime-web, jax-js, TF.js and cuBLAS on a GPU: "
              "products, attention, models", "30 min", needs="GPU, Node, npm, PyTorch",
              key="case engine"),
    Benchmark("peers.language", "language models beside wllama (llama.cpp in WebAssembly): "
              "prompt, tokens a second, load, memory", "10 min", needs="Chromium, npm",
              usage="MODEL.gguf", key="model browser engine threads prompt_tokens"),
    Benchmark("peers.llama", "a language model of 1.1 billion weights on a GPU beside "
              "onnxruntime-web, one ONNX file", "5 min", needs="GPU, Node, npm",
              key="engine layers width bits floats prompt"),
    Benchmark("language.logits", "logits of language models beside llama.cpp and an exact "
              "forward pass: equal likeliest tokens, divergence, perplexity", "10 min",
              needs="llama-cpp-python", usage="MODEL.gguf",
              key="model engine host halves bytes prompt tokens"),
    Benchmark("language.new_texts", "texts of an exported encoder-decoder model beside "
              "onnxruntime: how many of 50 are equal", "2 min", usage="FOLDER",
              key="model engine"),
    # ---- beside another checkout
    Benchmark("versions.speed", "kernels and models beside another checkout, each with its own "
              "compiler and engine", "30 min", needs="Chromium or a GPU, models",
              usage="--other ../before --models dist/models", key="host subject"),
    Benchmark("versions.visits", "load, first run, warm run and first trial beside another "
              "checkout's engine and tuner", "5 min", needs="browsers, Node",
              usage="--other ../before minilm=.demo/bundle"),
    # ---- the compiler
    Benchmark("compiler.curve", "seconds over nodes (500 to 20,000), MiniLM in 4 buckets, "
              "milliseconds per kernel", "1 min", usage="--model .demo/minilm.onnx"),
    Benchmark("compiler.in_page", "the compiler in a page under Pyodide: start, milliseconds per "
              "candidate, beside CPython", "2 min", needs="browsers"),
    Benchmark("compiler.candidates", "sizes of spaces, milliseconds per space and per candidate, "
              "scratch memory of candidates", "2 min", usage="MODEL.onnx", key="name"),
    # ---- tuning
    Benchmark("tuning.sweep", "every candidate of a kernel: the optimum, and how soon the order "
              "of trial finds it", "1 h", needs="browsers", key="host kernel device"),
    Benchmark("tuning.rounds", "trials of a session until a kernel has 97 % of the optimum of "
              "tuning.sweep", "10 min", needs="browser, tuning.sweep", key="host subject start"),
    Benchmark("tuning.next_device", "first inference with the winners of another device of the "
              "class", "20 min", needs="browser, tuning.sweep", key="host subject start"),
    Benchmark("tuning.server_part", "milliseconds that a server needs for a candidate's code",
              "30 s", key="host subject start"),
    Benchmark("tuning.whole_model", "a session on a whole model: seconds until the last kernel "
              "was replaced, and the gain", "2 min", needs="browser, model",
              usage="--model MODEL.onnx", key="host subject start"),
    Benchmark("tuning.good_defaults", "whether sessions from good defaults ever make a model "
              "slower", "5 min", needs="browser, model", usage="--model MODEL.onnx",
              key="host subject start"),
    Benchmark("tuning.latency", "p50 and p95 of inferences with and without a tuner", "1 min",
              needs="browser, model", usage="--model MODEL.onnx", key="host subject start"),
    Benchmark("tuning.memory", "memory of the browser before, while and after a model is tuned",
              "1 min", needs="browser, model, Linux", usage="--model MODEL.onnx",
              key="host subject start"),
    Benchmark("tuning.withheld", "trials, seconds and bytes of sessions that are not given the "
              "default, until 97 % of the best candidate left", "1 h", needs="browsers",
              key="host kernel device start order budget seed"),
    Benchmark("tuning.families", "whether a choice among families of schedules at load would "
              "beat one default for all", "2 h", needs="browsers", usage="sweep",
              key="host kernel device machine"),
    Benchmark("tuning.forecast", "trials that a session needs, with and without what its own "
              "trials teach; on stored sweeps", "1 min", needs="Node, tuning.headroom"),
    Benchmark("tuning.headroom", "public models: each kernel's default against its whole space, "
              "and how much of that a session finds", "hours", needs="browsers, network",
              usage="sweep", key="part host model device kernel seconds"),
    # ---- WebGPU on a GPU
    Benchmark("gpu.kernels", "K0 to K3, GEMM, GEMV and attention, beside a copy kernel and cuBLAS",
              "10 min", needs="GPU, Node, PyTorch", key="case"),
    Benchmark("gpu.js_time", "milliseconds of JavaScript in an inference of a 12-layer encoder, "
              "without the GPU's time", "2 min", needs="GPU, Node, Chromium", key="host width"),
    Benchmark("gpu.ablation", "what f16, packed dot products, subgroups, subgroup matrices and "
              "swizzled order gain", "10 min", needs="GPU, Node", key="gpu case"),
    Benchmark("gpu.encoder_tuning", "tuning a 12-layer encoder: seconds, candidates, gain",
              "1 min", needs="GPU, Node"),
    Benchmark("gpu.llama", "a language model of Llama 2 7B's sizes, 4 bits: tokens a second, "
              "milliseconds of a prompt", "5 min", needs="GPU, Node",
              key="layers width bits prompt halves bytes apart"),
    # ---- CUDA on an NVIDIA GPU
    Benchmark("cuda.kernels", "kernels beside cuBLAS, by the GPU's clock", "5 min",
              needs="NVIDIA GPU, PyTorch", key="case"),
    Benchmark("cuda.pytorch", "whole models at batch 1 beside PyTorch, eager and as a CUDA graph",
              "5 min", needs="NVIDIA GPU, PyTorch", key="model"),
    Benchmark("cuda.elastic", "what the elastic form costs alone, and how soon there is room for "
              "a critical kernel", "10 min", needs="NVIDIA GPU", key="what case blocks"),
    Benchmark("cuda.foreign", "other people's CUDA kernels in elastic form: refusals, what NVRTC "
              "takes, equal bits on the CPU", "hours", needs="NVRTC, C++ compiler",
              usage="FOLDER"),
    Benchmark("cuda.foreign_gpu", "kernels of the usual kinds in elastic form on a GPU: equal "
              "bits, cost, gain of --pad-shared", "5 min", needs="NVIDIA GPU"),
    # ---- several models on one GPU
    Benchmark("corun.policies", "a critical model beside normal ones under every policy: "
              "latency, normal share, total over sequential", "8 min", needs="NVIDIA GPU",
              key="gpu pair policy sms kernels clients l2_persistence rate load seed "
              "max_slowdown gaps together"),
    Benchmark("corun.floor", "how much longer a critical request takes if normal work must leave "
              "completely first", "5 min", needs="NVIDIA GPU", key="gpu pair sms beside"),
    Benchmark("corun.host_turns", "what the threads of normal models do to a critical request on "
              "the host; a clock stands for the GPU", "1 min", key="models together"),
    Benchmark("corun.bound", "whether the bound is kept on the simulated GPU, also with wrong "
              "curves", "1 h", key="workload variant max_slowdown"),
    # ---- votes and the server
    Benchmark("serving.crowd", "a simulated crowd with liars against the store: which keys end "
              "with the right default", "30 min", key="scenario class malicious seed"),
    Benchmark("serving.sockets", "1,000 devices on one tuning socket, then two servers that are "
              "killed again and again: waits, lost reports", "2 min", needs="PostgreSQL",
              key="what"),
    Benchmark("serving.liars", "20 and 40 % liars against a real server, over sockets: bad "
              "defaults of 100 keys", "10 min", key="tactic share voices seed"),
    Benchmark("serving.recovery", "how soon a page that does not tune has its own kernels back "
              "after bad defaults", "3 min", needs="browser", key="subject browser"),
    Benchmark("serving.front", "the server under 1,000 silent, trickling or half-open connections",
              "5 min", needs="Linux", key="kind networks held"),
)  # fmt: skip
CATALOGUE: Mapping[str, Benchmark] = {each.name: each for each in _ALL}


def of_folders(folders: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these folders, in order."""
    return [each for each in _ALL if each.name.partition(".")[0] in folders]


def listing() -> str:
    """A line for each: name, duration, what it measures, what it needs."""
    wide, long = (max(len(text) for text in of) for of in
                  (CATALOGUE, [each.takes for each in _ALL]))  # fmt: skip
    return "\n".join(
        f"{each.name:{wide}}  {each.takes:>{long}}  {each.measures}"
        + f" [{each.needs}]" * bool(each.needs)
        for each in _ALL
    )
