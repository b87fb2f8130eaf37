"""Makes the tiny projectors with drawn weights of this folder: models/NAME.gguf. Needs numpy.

    ./dev shell python3 tests/golden/pictures/make.py
    ./dev shell python3 tests/golden/pictures/make.py corpus    smaller ones, for the fuzzer of projectors
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "embeddings"), str(HERE.parents[2] / "tools")]
from gguf_writer import U32, Writer  # noqa: E402
from make import Random, bpe  # noqa: E402

FOLDER = HERE / "models"
EMBD, HEADS, FF, TEXT_EMBD = 32, 2, 48, 64  # the golden language models that take the rows are 64 wide


def projector(name, kind, seed, patch, size, layers, matrices="F32", ff=None, out=None, **more):
    writer, random = Writer(), Random(seed)
    writer.add("general.architecture", "clip")
    writer.add("general.name", name)
    writer.add("clip.projector_type", kind)
    writer.add("clip.has_vision_encoder", True)
    for key, value in (("image_size", size), ("patch_size", patch), ("embedding_length", EMBD),
                       ("feed_forward_length", FF if ff is None else ff),
                       ("projection_dim", TEXT_EMBD if out is None else out), ("block_count", layers),
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
        self.writer.write(FOLDER / f"{name}.gguf")


def blocks(parts, layers, fused=False, gated=False, biased=True, up="ffn_up", down="ffn_down"):
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
        parts.linear(f"{block}.{up}", FF, EMBD)
        parts.linear(f"{block}.{down}", EMBD, FF)


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


def merged(parts, prefix, first, second):
    """What makes one row of 2 x 2 patches."""
    parts.linear(f"{prefix}.{first}", 4 * EMBD, 4 * EMBD)
    parts.linear(f"{prefix}.{second}", TEXT_EMBD, 4 * EMBD)


def qwen2vl(name, seed):
    """Pictures of their own size, rotated by line and column, 2 x 2 patches a row. As older converters wrote it: sizes
    are missing, and the names of the feed-forward are each other's."""
    parts = Parts(*projector(name, "qwen2vl_merger", seed, 4, 32, 2, ff=0, out=0))
    parts.patches("v.patch_embd.weight", 4)
    parts.patches("v.patch_embd.weight.1", 4)
    blocks(parts, 2, up="ffn_down", down="ffn_up")
    parts.norm("v.post_ln", EMBD)
    merged(parts, "mm", 0, 2)
    parts.save(name)


def qwen25vl(name, seed):
    """The same with RMS norms, a gate, and windows of 112 pixels in all but each second block."""
    parts = Parts(*projector(name, "qwen2.5vl_merger", seed, 8, 32, 3, "F16", use_silu=True, vision__n_wa_pattern=U32(2)))
    parts.patches("v.patch_embd.weight", 8)
    parts.patches("v.patch_embd.weight.1", 8)
    blocks(parts, 3, gated=True, biased=False)
    parts.norm("v.post_ln", EMBD, False)
    merged(parts, "mm", 0, 2)
    parts.save(name)


def language(name, seed, family):
    """A language model for Qwen's rows: positions of three axes; of qwen3vl, a part for its first layer."""
    embd, heads, kv, head, layers, ff = TEXT_EMBD, 2, 1, 16, 3, 48
    parts = Parts(Writer(), Random(seed), "F32")
    parts.writer.add("general.architecture", family)
    parts.writer.add("general.name", name)
    for key, value in (("context_length", 256), ("embedding_length", embd), ("block_count", layers),
                       ("feed_forward_length", ff), ("attention.head_count", heads), ("attention.head_count_kv", kv),
                       *((("attention.key_length", head), ("attention.value_length", head), ("n_deepstack_layers", 1))
                         if family == "qwen3vl" else ())):
        parts.writer.add(f"{family}.{key}", U32(value))
    parts.writer.add(f"{family}.attention.layer_norm_rms_epsilon", 1e-6)
    parts.writer.add(f"{family}.rope.freq_base", 1e4)
    parts.writer.add(f"{family}.rope.dimension_sections", [3, 3, 2, 0])
    n_vocab = bpe(parts.writer)
    parts.matrix("token_embd", n_vocab, embd, gain=5)
    parts.norm("output_norm", embd, False)
    parts.matrix("output", n_vocab, embd, gain=2)
    for i in range(layers):
        parts.norm(f"blk.{i}.attn_norm", embd, False)
        parts.norm(f"blk.{i}.ffn_norm", embd, False)
        if family == "qwen3vl":
            parts.norm(f"blk.{i}.attn_q_norm", head, False)
            parts.norm(f"blk.{i}.attn_k_norm", head, False)
        for matrix, rows, columns in (("attn_q", heads * head, embd), ("attn_k", kv * head, embd),
                                      ("attn_v", kv * head, embd), ("attn_output", embd, heads * head),
                                      ("ffn_gate", ff, embd), ("ffn_up", ff, embd), ("ffn_down", embd, ff)):
            parts.matrix(f"blk.{i}.{matrix}", rows, columns)
            if family == "qwen2vl" and matrix in ("attn_q", "attn_k", "attn_v"):
                parts.bias(f"blk.{i}.{matrix}", rows)
    parts.save(name)


def qwen3vl(name, seed):
    """Learned positions for a picture of 24 x 24, stretched; one block gives rows of its own."""
    deep = [False, True, False]
    parts = Parts(*projector(name, "qwen3vl_merger", seed, 4, 24, 3, "F16", use_gelu=True,
                             vision__spatial_merge_size=U32(2), vision__is_deepstack_layers=deep))
    parts.patches("v.patch_embd.weight", 4)
    parts.patches("v.patch_embd.weight.1", 4)
    parts.bias("v.patch_embd", EMBD)
    parts.table(36, EMBD)
    blocks(parts, 3, fused=True)
    parts.norm("v.post_ln", EMBD)
    merged(parts, "mm", 0, 2)
    for i, is_deep in enumerate(deep):
        if is_deep:
            parts.norm(f"v.deepstack.{i}.norm", 4 * EMBD)
            parts.linear(f"v.deepstack.{i}.fc1", 4 * EMBD, 4 * EMBD)
            parts.linear(f"v.deepstack.{i}.fc2", TEXT_EMBD, 4 * EMBD)
    parts.save(name)


if __name__ == "__main__":
    if sys.argv[1:] == ["corpus"]:
        FOLDER = HERE.parents[1] / "fuzz" / "corpus" / "projector"
        EMBD, FF, TEXT_EMBD = 8, 12, 6
    FOLDER.mkdir(exist_ok=True)
    gemma3("gemma3", 1, "F32")
    gemma3("gemma3-f16", 2, "F16")
    TEXT_EMBD //= 2  # so that their language models are small
    qwen2vl("qwen2vl", 3)
    qwen25vl("qwen2.5vl", 4)
    qwen3vl("qwen3vl", 5)
    if FOLDER.name == "models":
        language("language-qwen3vl", 6, "qwen3vl")
        language("language-qwen2vl", 7, "qwen2vl")
