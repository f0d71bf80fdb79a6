"""The sizes of a GGUF model, read from its metadata and checked once.

Input: a `GgufFile`.  Output: `Hyperparameters`, or a typed error that names the key.  It reads no
tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.gguf.architectures import Architecture, architecture
from tilewright.frontend.gguf.file import GgufFile

#: Layers, and numbers of any other kind; no published model comes near.
MOST_LAYERS, MOST = 1 << 10, 1 << 24


@dataclass(frozen=True)
class Hyperparameters:
    """name: the architecture's; its metadata begin with it;  head: numbers of a head
    trained: tokens that the model was trained for;  window: keys that a row sees, where it does not
    see all;  caps: of scores and of logits; 0 if none
    """

    name: str
    kind: Architecture
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    trained: int
    epsilon: float
    window: int
    windows: int
    caps: tuple[float, float]

    def is_local(self, layer: int) -> bool:
        """Whether this layer sees only the window."""
        return bool(self.window and self.windows) and (layer + 1) % self.windows != 0

    def turns(self, layer: int) -> bool:
        """Whether queries and keys of this layer are rotated."""
        return not self.kind.every or (layer + 1) % self.kind.every != 0

    @property
    def scale(self) -> float:
        """Of scores."""
        size = self.width / self.heads if self.layers in self.kind.roots else self.head
        return float(size**-0.5)


def hyperparameters_of(file: GgufFile) -> Hyperparameters:
    """Raises UnsupportedOp, InvalidModel."""
    name = file.text("general.architecture")
    kind = architecture(name)

    def whole(key: str, default: int | None = None, most: int = MOST) -> int:
        found = file.whole(f"{name}.{key}", default)
        if not 0 < found <= most:
            raise InvalidModel(f"{name}.{key} cannot be {found}", key=f"{name}.{key}")
        return found

    if file.whole(f"{name}.expert_count", 0):
        raise UnsupportedOp("mixtures of experts are not supported", architecture=name)
    width, heads = whole("embedding_length"), whole("attention.head_count")
    own, head = (
        whole("attention.head_count_kv", heads),
        whole("attention.key_length", width // heads),
    )
    if heads % own or head % 2 or whole("attention.value_length", head) != head:
        raise UnsupportedOp(
            f"{heads} heads of queries beside {own} of keys with {head} numbers are not supported",
            architecture=name,
        )
    return Hyperparameters(
        name=name, kind=kind, layers=whole("block_count", most=MOST_LAYERS), width=width,
        heads=heads, kv_heads=own, head=head, trained=whole("context_length"),
        epsilon=file.number(f"{name}.attention.layer_norm_rms_epsilon"),
        window=file.whole(f"{name}.attention.sliding_window", 0) if kind.windows else 0,
        windows=_windows(file, name, kind.windows),
        caps=(file.number(f"{name}.attn_logit_softcapping", 0.0),
              file.number(f"{name}.final_logit_softcapping", 0.0)),
    )  # fmt: skip


def _windows(file: GgufFile, name: str, usual: int) -> int:
    """Newer files may say how many layers share a pattern."""
    key = f"{name}.attention.sliding_window_pattern"
    return file.whole(key, usual) if isinstance(file.metadata.get(key), int) else usual
