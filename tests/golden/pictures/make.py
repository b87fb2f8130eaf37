"""Makes the tiny projectors with drawn weights of this folder: models/NAME.gguf. Needs numpy.

    ./dev shell python3 tests/golden/pictures/make.py
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "embeddings"), str(HERE.parents[2] / "tools")]
from gguf_writer import U32, Writer  # noqa: E402
from make import Random  # noqa: E402

EMBD, HEADS, FF, TEXT_EMBD = 32, 2, 48, 64  # the golden language models that take the rows are 64 wide


def projector(name, kind, seed, patch, size, layers, matrices="F32", **more):
    writer, random = Writer(), Random(seed)
    writer.add("general.architecture", "clip")
    writer.add("general.name", name)
    writer.add("clip.projector_type", kind)
    writer.add("clip.has_vision_encoder", True)
    for key, value in (("image_size", size), ("patch_size", patch), ("embedding_length", EMBD),
                       ("feed_forward_length", FF), ("projection_dim", TEXT_EMBD), ("block_count", layers),
                       ("attention.head_count", HEADS)):
        writer.add(f"clip.vision.{key}", U32(value))
    writer.add("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add("clip.vision.image_mean", [0.5, 0.45, 0.4])
    writer.add("clip.vision.image_std", [0.5, 0.25, 0.3])
    for key, value in more.items():
        writer.add(f"clip.{key.replace('__', '.')}", value)
    return writer, random, matrices


class Parts:
    def __init__(self, writer, random, matrices):
        self.writer, self.random, self.matrices = writer, random, matrices

    def matrix(self, name, *shape, gain=1.2):
        self.writer.add_tensor(f"{name}.weight", self.random.matrix(*shape, gain=gain), self.matrices)

    def bias(self, name, size):
        self.writer.add_tensor(f"{name}.bias", self.random.bias(size), "F32")

    def linear(self, name, rows, columns):
        self.matrix(name, rows, columns)
        self.bias(name, rows)

    def norm(self, name, size, bias=True):
        self.writer.add_tensor(f"{name}.weight", self.random.norm(size), "F32")
        if bias:
            self.bias(name, size)

    def patches(self, name, patch):
        weights = self.random.matrix(EMBD, 3 * patch * patch, gain=1.5).reshape(EMBD, 3, patch, patch)
        self.writer.add_tensor(name, weights, self.matrices)

    def table(self, *shape):
        self.writer.add_tensor("v.position_embd.weight", self.random.matrix(*shape, gain=2.0), "F32")

    def save(self, name):
        self.writer.write(HERE / "models" / f"{name}.gguf")


def blocks(parts, layers, fused=False, gated=False, biased=True, gelu_fused=False):
    for i in range(layers):
        block = f"v.blk.{i}"
        parts.norm(f"{block}.ln1", EMBD, biased)
        parts.norm(f"{block}.ln2", EMBD, biased)
        if fused:
            parts.linear(f"{block}.attn_qkv", 3 * EMBD, EMBD)
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                parts.linear(f"{block}.{name}", EMBD, EMBD)
        parts.linear(f"{block}.attn_out", EMBD, EMBD)
        if gated:
            parts.linear(f"{block}.ffn_gate", FF, EMBD)
        parts.linear(f"{block}.ffn_up", FF, EMBD)
        parts.linear(f"{block}.ffn_down", EMBD, FF)


def gemma3(name, seed, matrices):
    """SigLIP, pooled 2 x 2, normed, projected."""
    parts = Parts(*projector(name, "gemma3", seed, 4, 32, 2, matrices, use_gelu=True,
                             vision__projector__scale_factor=U32(2)))
    parts.patches("v.patch_embd.weight", 4)
    parts.bias("v.patch_embd", EMBD)
    parts.table(64, EMBD)
    blocks(parts, 2)
    parts.norm("v.post_ln", EMBD)
    parts.norm("mm.soft_emb_norm", EMBD, False)
    parts.matrix("mm.input_projection", EMBD, TEXT_EMBD)
    parts.save(name)


if __name__ == "__main__":
    (HERE / "models").mkdir(exist_ok=True)
    gemma3("gemma3", 1, "F32")
    gemma3("gemma3-f16", 2, "F16")
