"""The models of benchmarks/peers as TFLite files and TF.js graph models, with the same weights.

Input: the folder of ONNX models, `--out DIR`, names to choose some.  Output: DIR/tflite/NAME.tflite
and DIR/tfjs/NAME/model.json with weights.bin, of exactly the sizes that are measured.  Needs
TensorFlow and onnx (see README.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
# Otherwise TensorFlow's optimiser makes fused operations that only oneDNN has.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import onnx
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from target import add_force, free
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.grappler import tf_optimizer
from tensorflow_ops import traced

from benchmarks.peers.cases import CASES, Model
from benchmarks.peers.examples import example, model_file
from benchmarks.peers.gpu_cases import CASES as ON_GPU
from benchmarks.peers.gpu_cases import small

#: An 8-bit model is made of the one without this ending, by TFLite's own quantisation.
INT8 = "_int8"
IMAGES = 8
#: What TF.js's own converter asks of TensorFlow's optimiser.
REWRITES = ("debug_stripper", "remap", "constfold", "arithmetic", "dependency")
#: The optimiser fuses only what is placed there.
CPU = "/device:CPU:0"
DEPTHWISE, FUSED_DEPTHWISE = "DepthwiseConv2dNative", "FusedDepthwiseConv2dNative"
CONVOLUTIONS = ("Conv2D", "_FusedConv2D", DEPTHWISE)


def function(path: Path, length: int, flat: bool) -> Any:
    """The model as a concrete function of fixed shapes, integers of 32 bits, pictures NHWC."""
    model = onnx.load(path)
    specs = []
    for name, value in example(model, length).items():
        shape = tuple(value.shape[i] for i in (0, 2, 3, 1)) if value.ndim == 4 else value.shape
        dtype = {"int64": "int32"}.get(value.dtype.name, value.dtype.name)
        specs.append(tf.TensorSpec(shape, dtype, name=name))

    def run(*given: Any) -> list[Any]:
        feeds = {spec.name: tensor for spec, tensor in zip(specs, given, strict=True)}
        return [tf.identity(value) for value in traced(model, feeds, flat)]

    return tf.function(run, autograph=False).get_concrete_function(*specs)


def write_tflite(path: Path, length: int, out: Path, name: str, force: bool) -> None:
    target = free(out / "tflite" / f"{name}.tflite", force)
    concrete = function(path, length, flat=True)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
    if name.endswith(INT8):
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = partial(images, concrete.inputs[0].shape)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(converter.convert())
    print(f"{target.name}: {target.stat().st_size:,} bytes", flush=True)


def images(shape: Sequence[int]) -> Iterator[list[Any]]:
    """The noise that quantize.py calibrates with, channels last."""
    source = np.random.default_rng(3)
    batch, height, width, channels = shape
    for _ in range(IMAGES):
        image = source.standard_normal((batch, channels, height, width)).astype(np.float32)
        yield [image.transpose(0, 2, 3, 1)]


def write_tfjs(path: Path, length: int, out: Path, name: str, force: bool) -> None:
    """A graph model: the graph without its constants as JSON, the constants as bytes."""
    folder = out / "tfjs" / name
    topology, constants = (free(folder / n, force) for n in ("model.json", "weights.bin"))
    concrete = convert_variables_to_constants_v2(function(path, length, flat=False))
    graph = _optimised(concrete)
    _pads_inside(graph)
    _fuse_depthwise(graph)
    folder.mkdir(parents=True, exist_ok=True)
    weights, chunks = [], []
    for node in graph.node:
        if node.op == "Const":
            value = tf.make_ndarray(node.attr["value"].tensor)
            node.attr["value"].tensor.tensor_content = b""
            weights.append(
                {"name": node.name, "shape": list(value.shape), "dtype": value.dtype.name}
            )
            chunks.append(np.ascontiguousarray(value).tobytes())
            for field in ("float_val", "int_val", "bool_val", "half_val", "double_val"):
                node.attr["value"].tensor.ClearField(field)
    constants.write_bytes(b"".join(chunks))
    record = {
        "format": "graph-model",
        "generatedBy": "benchmarks/export",
        "modelTopology": MessageToDict(graph),
        "weightsManifest": [{"paths": ["weights.bin"], "weights": weights}],
        "outputs": [tensor.name for tensor in concrete.outputs],
    }
    topology.write_text(json.dumps(record, sort_keys=True))
    print(f"tfjs {name}: {constants.stat().st_size:,} bytes", flush=True)


def _optimised(concrete: Any) -> Any:
    """The function's graph after TensorFlow's optimiser, which fuses biases and activations."""
    collection = meta_graph_pb2.CollectionDef()
    collection.node_list.value.extend(tensor.name.split(":")[0] for tensor in concrete.outputs)
    exported = tf.compat.v1.train.export_meta_graph(
        graph_def=concrete.graph.as_graph_def(), graph=concrete.graph
    )
    exported.collection_def["train_op"].CopyFrom(collection)
    for node in exported.graph_def.node:
        node.device = CPU
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.optimizers.extend(REWRITES)
    graph = tf_optimizer.OptimizeGraph(config, exported)
    for node in graph.node:
        node.device = ""
    return graph


def _readers(graph: Any) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            found[name].append(node)
    return found


def _pads_inside(graph: Any) -> None:
    """Margins as a setting of the convolution behind them, instead of a copy with margins."""
    nodes, readers = {node.name: node for node in graph.node}, _readers(graph)
    for conv in [node for node in graph.node if node.op in CONVOLUTIONS]:
        pad = nodes[conv.input[0]]
        if pad.op != "Pad" or len(readers[pad.name]) > 1 or conv.attr["padding"].s != b"VALID":
            continue
        margins = tf.make_ndarray(nodes[pad.input[1]].attr["value"].tensor)
        conv.attr["padding"].s = b"EXPLICIT"
        conv.attr["explicit_paddings"].list.i[:] = margins.ravel().tolist()
        conv.input[0] = pad.input[0]
        graph.node.remove(pad)
    read = _readers(graph)
    for node in [node for node in graph.node if node.op == "Const" and node.name not in read]:
        graph.node.remove(node)


def _fuse_depthwise(graph: Any) -> None:
    """Biases and activations into depthwise convolutions, as TF.js's own converter does it."""
    readers = _readers(graph)
    for conv in [node for node in graph.node if node.op == DEPTHWISE]:
        chain = [conv]
        for kinds in (["BiasAdd"], ["Relu", "Relu6"]):
            after = readers[chain[-1].name]
            if len(after) != 1 or after[0].op not in kinds:
                break
            chain.append(after[0])
        if len(chain) > 1:
            conv.attr["fused_ops"].list.s.extend(node.op.encode() for node in chain[1:])
            conv.attr["num_args"].i = 1
            conv.input.append(chain[1].input[1])
            # readers know the last by its name
            conv.op, conv.name = FUSED_DEPTHWISE, chain[-1].name
            for node in chain[1:]:
                graph.node.remove(node)


WRITERS: dict[str, Callable[[Path, int, Path, str, bool], None]] = {
    "tflite": write_tflite,
    "tfjs": write_tfjs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="the folder of ONNX files")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the others")
    parser.add_argument("--format", choices=sorted(WRITERS), help="only this one")
    parser.add_argument("--gpu", action="store_true", help="the models of peers.webgpu")
    parser.add_argument("--small", action="store_true", help="with --gpu: its small forms")
    parser.add_argument("names", nargs="*", help="only these cases")
    add_force(parser)
    options = parser.parse_args()
    for case in ON_GPU if options.gpu else CASES:
        if not isinstance(case.work, Model) or (options.names and case.name not in options.names):
            continue
        stem = (small(case) if options.small else case).work.stem
        path = model_file(replace(case.work, stem=stem.removesuffix(INT8)), options.models)
        chosen = [options.format] if options.format else sorted(WRITERS)
        for name in chosen if path else []:
            if name == "tfjs" and stem.endswith(INT8):
                continue  # it has no 8-bit arithmetic
            WRITERS[name](path, case.work.length, options.out, stem, options.force)


if __name__ == "__main__":
    main()
