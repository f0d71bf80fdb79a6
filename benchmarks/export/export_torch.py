"""Exports the models of tests and benchmarks from PyTorch, by both of its exporters.

Input: `--out DIR`, `--tiny` for the fixtures of tests/models, names to choose some.  Output: one
.onnx file per model, exporter and kind of attention.  Needs torch, transformers and onnxscript (see
README.md); Tilewright itself never needs them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch
from target import add_force, free
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedConfig,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5Model,
)
from vision import alexnet, mobilenet_v2, resnet18, resnet50, squeezenet

TORCHSCRIPT_OPSET, DYNAMO_OPSET = 17, 20
TINY = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 66,
}  # fmt: skip
MINILM = {
    "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "vocab_size": 30522,
}  # fmt: skip
ROBERTA = {
    "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "pad_token_id": 1,
}  # fmt: skip
BART = {
    "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
    "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
}  # fmt: skip
TINY_BART = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "vocab_size": 100, "max_position_embeddings": 66,
}  # fmt: skip
TINY_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 66}
TINY_T5 = {
    "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 100,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model to export: how to build it, example inputs, and its dynamic dimensions."""

    build: Callable[[], nn.Module]
    inputs: Mapping[str, Tensor]
    output: str
    dynamic: Mapping[str, Mapping[int, str]]


class Encoder(nn.Module):
    """A transformers model that returns its last hidden state only, and keeps no cache."""

    def __init__(self, model: nn.Module, **more: bool) -> None:
        super().__init__()
        self.model, self.more = model, more

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        made = self.model(input_ids=input_ids, attention_mask=attention_mask, **self.more)
        return made.last_hidden_state  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The decoder of an encoder-decoder: the last hidden state of all positions at once."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> Tensor:
        made = self.model(
            input_ids=input_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            use_cache=False,
        )
        return made.last_hidden_state  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """An LSTM or GRU over a sequence [steps, batch, features], which returns every step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.model(x)[0]
        return made


def text(kind: str, attention: str, sizes: Mapping[str, Any]) -> Case:
    """A BERT or RoBERTa encoder with random weights and the sequence length "n"."""

    def build() -> nn.Module:
        config, model = (BertConfig, BertModel) if kind == "bert" else (RobertaConfig, RobertaModel)
        made = model(config(**sizes, attn_implementation=attention), add_pooling_layer=False)
        return Encoder(made.eval())

    return tokens(build)


def tokens(build: Callable[[], nn.Module]) -> Case:
    ids = torch.arange(2, 14).reshape(1, 12)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Case(build, inputs, "last_hidden_state", {name: {1: "n"} for name in inputs})


def gpt2(sizes: Mapping[str, Any]) -> Case:
    """GPT-2 without the head: the logits of every position are not needed."""
    return tokens(lambda: Encoder(GPT2Model(GPT2Config(**sizes)).eval(), use_cache=False))


def pair(
    name: str, config: PreTrainedConfig, model: Callable[[PreTrainedConfig], nn.Module]
) -> dict[str, Case]:
    """Both halves of an encoder-decoder: "n" tokens each; the decoder also gets "m" states."""
    ids = torch.arange(2, 14).reshape(1, 12)
    states = torch.randn((1, 9, config.hidden_size), generator=torch.Generator().manual_seed(2))
    inputs = {
        "input_ids": ids,
        "encoder_hidden_states": states,
        "encoder_attention_mask": torch.ones((1, 9), dtype=torch.int64),
    }
    dynamic = {key: {1: "n" if key == "input_ids" else "m"} for key in inputs}
    return {
        f"{name}-encoder": tokens(lambda: Encoder(model(config).eval().get_encoder())),
        f"{name}-decoder": Case(
            lambda: Decoder(model(config).eval().decoder), inputs, "last_hidden_state", dynamic
        ),
    }


def sequence(kind: type[nn.Module], width: int, hidden: int, steps: int, **more: Any) -> Case:
    x = torch.randn((steps, 1, width), generator=torch.Generator().manual_seed(2))
    return Case(lambda: Recurrent(kind(width, hidden, **more).eval()), {"x": x}, "y", {})


def image(build: Callable[[], nn.Module], size: int) -> Case:
    pixels = torch.rand((1, 3, size, size), generator=torch.Generator().manual_seed(2))
    return Case(build, {"x": pixels}, "logits", {})


def cases(tiny: bool) -> dict[str, Case]:
    made: dict[str, Case] = {}
    bart, t5 = (TINY_BART, TINY_T5) if tiny else (BART, {})
    made |= pair("bart-tiny" if tiny else "bart-base", BartConfig(**bart), BartModel)
    made |= pair("t5-tiny" if tiny else "t5-small", T5Config(**t5), T5Model)
    made["gpt2-tiny" if tiny else "gpt2"] = gpt2(TINY_GPT2 if tiny else {})
    for attention in ("sdpa", "eager"):
        if tiny:
            made[f"bert-tiny-{attention}"] = text("bert", attention, TINY)
            sizes = ROBERTA | TINY
            made[f"roberta-tiny-{attention}"] = text("roberta", attention, sizes)
        else:
            made[f"bert-base-{attention}"] = text("bert", attention, {})
            made[f"roberta-base-{attention}"] = text("roberta", attention, ROBERTA)
            made[f"minilm-random-{attention}"] = text("bert", attention, MINILM)
    if tiny:
        made["resnet-tiny"] = image(lambda: resnet18((8, 8, 16, 16), 10), 32)
        made["squeezenet-tiny"] = image(lambda: squeezenet(8, 10), 48)
        made["lstm-tiny"] = sequence(nn.LSTM, 6, 10, 5, num_layers=2, bidirectional=True)
        made["gru-tiny"] = sequence(nn.GRU, 6, 10, 5, num_layers=2, bidirectional=True)
    else:
        for build in (resnet18, resnet50, squeezenet, mobilenet_v2, alexnet):
            made[build.__name__] = image(build, 224)
        made["lstm"] = sequence(nn.LSTM, 256, 512, 64, num_layers=2)
        made["gru"] = sequence(nn.GRU, 256, 512, 64, num_layers=2)
    return made


def by_torchscript(case: Case, model: nn.Module, path: Path) -> None:
    torch.onnx.export(
        model,
        tuple(case.inputs.values()),
        str(path),
        dynamo=False,
        opset_version=TORCHSCRIPT_OPSET,
        input_names=list(case.inputs),
        output_names=[case.output],
        dynamic_axes={**case.dynamic, **({case.output: {1: "n"}} if case.dynamic else {})},
    )


def by_dynamo(case: Case, model: nn.Module, path: Path, optimize: bool = True) -> None:
    dims = {name: torch.export.Dim(name) for at in case.dynamic.values() for name in at.values()}
    shapes = tuple({axis: dims[dim] for axis, dim in at.items()} for at in case.dynamic.values())
    torch.onnx.export(
        model,
        tuple(case.inputs.values()),
        str(path),
        dynamo=True,
        opset_version=DYNAMO_OPSET,
        input_names=list(case.inputs),
        output_names=[case.output],
        dynamic_shapes=shapes or None,
        external_data=False,
        optimize=optimize,
        verbose=False,
    )


#: The last one keeps what the exporter's own optimiser would fold, such as BatchNormalization.
EXPORTERS: dict[str, Callable[[Case, nn.Module, Path], None]] = {
    "torchscript": by_torchscript,
    "dynamo": by_dynamo,
    "dynamo-plain": partial(by_dynamo, optimize=False),
}
DEFAULT = ("torchscript", "dynamo")


def export(case: Case, exporter: str, path: Path) -> None:
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        EXPORTERS[exporter](case, case.build(), path)
    strip(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


def strip(path: Path) -> None:
    """Without the exporter's stack traces, which name files of the machine that exported."""
    model = onnx.load(path)
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output,
                 *graph.initializer, *model.functions):  # fmt: skip
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    onnx.save(model, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder for the files")
    parser.add_argument("--tiny", action="store_true", help="the fixtures instead of full size")
    parser.add_argument("--exporter", choices=sorted(EXPORTERS), help="only this one")
    parser.add_argument("names", nargs="*", help="only models whose name begins so")
    add_force(parser)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, case in cases(options.tiny).items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        for exporter in [options.exporter] if options.exporter else DEFAULT:
            path = options.out / f"{name}-{exporter}.onnx"
            export(case, exporter, free(path, options.force))


if __name__ == "__main__":
    main()
