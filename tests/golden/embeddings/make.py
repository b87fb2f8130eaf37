"""Makes the tiny random models of this folder: models/NAME.gguf. Needs numpy.

    python3 tests/golden/embeddings/make.py
"""

import pathlib
import struct
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
from gguf_writer import U32, Writer  # noqa: E402

EMBD, HEADS, LAYERS, CONTEXT, EXPERTS = 32, 2, 2, 128, 4
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "quick", "brown", "fox", "jump", "over", "lazy", "hello",
         "world", "in", "of", "and", "strasse", "cafe", "is", "a", "un", "believ", "able"]


class Random:
    def __init__(self, seed):
        self.source = np.random.default_rng(seed)

    def matrix(self, *shape, gain=1.2):
        return self.source.normal(0, gain / np.sqrt(shape[-1]), shape).astype(np.float32)

    def norm(self, size):
        return self.source.normal(1, 0.1, size).astype(np.float32)

    def bias(self, size):
        return self.source.normal(0, 0.2, size).astype(np.float32)


# ---- vocabularies ---------------------------------------------------------------------------------


def wordpiece(writer):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    kinds = [CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL]
    pieces = [SPACE + c for c in LETTERS + "0123456789.,!?-'$+\u4e2d\u56fd\u00df\u03b1\u03b2\u1100"]
    pieces += list(LETTERS + "0123456789\u00df\u03b1\u03b2")
    pieces += [SPACE + w for w in WORDS if len(w) > 1] + ["ing", "ed", "s" + "t", "able", "ly", "er"]
    tokens += pieces
    kinds += [NORMAL] * len(pieces)
    writer.add("tokenizer.ggml.model", "bert")
    writer.add("tokenizer.ggml.pre", "jina-v2-en")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", kinds)
    writer.add("tokenizer.ggml.token_type_count", U32(2))
    for name, value in (("padding", 0), ("unknown", 1), ("cls", 2), ("bos", 2), ("seperator", 3), ("mask", 4)):
        writer.add(f"tokenizer.ggml.{name}_token_id", U32(value))
    return len(tokens)


def charsmap(pairs):
    """sentencepiece's normaliser: a double array of the keys, then the replacements, each ended by NUL."""
    replacements, offsets = b"", {}
    for key, value in pairs.items():
        offsets[key.encode()] = len(replacements)
        replacements += value.encode() + b"\0"
    units, used = {0: 0}, {0}

    def children(prefix):
        return sorted({key[len(prefix)] for key in offsets if key.startswith(prefix) and len(key) > len(prefix)})

    def place(node, prefix):
        below = children(prefix)
        leaf = prefix in offsets
        labels = below + ([0] if leaf else [])
        base = 1
        while any((base ^ c) in used for c in labels) or (node ^ base) == 0 or base in (node,):
            base += 1
            if base >= 1 << 21:
                raise ValueError("no room")
        # the unit keeps the distance from the node to its children's base
        offset = node ^ base
        used.update(base ^ c for c in labels)
        units[node] = units.get(node, 0) | offset << 10 | (1 << 8 if leaf else 0)
        if leaf:
            units[base] = offsets[prefix] | 1 << 31
        for c in below:
            units[base ^ c] = c
        for c in below:
            place(base ^ c, prefix + bytes([c]))

    place(0, b"")
    array = [units.get(i, 0) for i in range(max(units) + 257)]
    return struct.pack("<I", 4 * len(array)) + struct.pack(f"<{len(array)}I", *array) + replacements


def unigram(writer):
    tokens = [("<s>", 0, CONTROL), ("<pad>", 0, CONTROL), ("</s>", 0, CONTROL), ("<unk>", 0, UNKNOWN)]
    tokens += [(SPACE, -2.5, NORMAL)]
    tokens += [(SPACE + w, -3.0 - i / 10, NORMAL) for i, w in enumerate(WORDS)]
    tokens += [(w, -4.0 - i / 10, NORMAL) for i, w in enumerate(["ing", "ed", "st", "able", "ly", "er", "at", "qu"])]
    tokens += [(c, -6.0 - i / 20, NORMAL) for i, c in enumerate(LETTERS + "ABC0123456789.,!?'\u4e2d\u56fd\u00e9\u03b1")]
    tokens += [("<mask>", 0, USER), ("New York", -5.0, USER)]
    writer.add("tokenizer.ggml.model", "t5")
    writer.add("tokenizer.ggml.pre", "default")
    writer.add("tokenizer.ggml.tokens", [t for t, _, _ in tokens])
    writer.add("tokenizer.ggml.scores", [float(s) for _, s, _ in tokens])
    writer.add("tokenizer.ggml.token_type", [k for _, _, k in tokens])
    for name, value in (("bos", 0), ("padding", 1), ("eos", 2), ("unknown", 3), ("seperator", 2), ("cls", 0)):
        writer.add(f"tokenizer.ggml.{name}_token_id", U32(value))
    for name in ("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces"):
        writer.add(f"tokenizer.ggml.{name}", True)
    writer.add("tokenizer.ggml.token_type_count", U32(1))
    writer.add_bytes("tokenizer.ggml.precompiled_charsmap", charsmap(
        {"\uff21": "A", "\uff42": "b", "\u00a0": " ", "\t": " ", "\n": " ", "\ufb01": "fi", "\u2026": "...", "e\u0301": "\u00e9",
         "\u200b": ""}))
    return len(tokens)


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(other))]


def bpe(writer, pre="qwen2"):
    tokens = byte_alphabet()
    merges = ["t h", "th e", "\u0120 the", "i n", "\u0120 c", "\u0120c a", "\u0120ca t"]
    controls = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"] if pre == "modern-bert" else ["<|endoftext|>", "<|im_end|>"]
    tokens += [m.replace(" ", "") for m in merges] + controls
    kinds = [NORMAL] * (len(tokens) - len(controls)) + [CONTROL] * len(controls)
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", pre)
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", kinds)
    writer.add("tokenizer.ggml.merges", merges)
    if pre == "modern-bert":
        first = len(tokens) - len(controls)
        for i, name in enumerate(("cls", "seperator", "padding", "unknown", "mask")):
            writer.add(f"tokenizer.ggml.{name}_token_id", U32(first + i))
        writer.add("tokenizer.ggml.bos_token_id", U32(first))
        writer.add("tokenizer.ggml.eos_token_id", U32(first + 1))
        for name in ("add_bos_token", "add_eos_token", "add_sep_token"):
            writer.add(f"tokenizer.ggml.{name}", True)
        return len(tokens)
    writer.add("tokenizer.ggml.eos_token_id", U32(len(tokens) - 2))
    writer.add("tokenizer.ggml.add_bos_token", False)
    writer.add("tokenizer.ggml.add_eos_token", True)
    return len(tokens)


# ---- models ---------------------------------------------------------------------------------------


def keys(writer, name, family, pooling, ff, causal=False, layers=LAYERS, **more):
    writer.add("general.architecture", family)
    writer.add("general.name", f"random {name}")
    for name, value in dict(block_count=layers, context_length=CONTEXT, embedding_length=EMBD,
                            feed_forward_length=ff, pooling_type=pooling).items():
        writer.add(f"{family}.{name}", U32(value))
    writer.add(f"{family}.attention.head_count", U32(HEADS))
    if not causal:
        writer.add(f"{family}.attention.causal", False)
        writer.add(f"{family}.attention.layer_norm_epsilon", 1e-12)
    for name, value in more.items():
        writer.add(f"{family}.{name.replace('__', '.')}", value)


def norm(writer, r, name):
    writer.add_tensor(f"{name}.weight", r.norm(EMBD), "F32")
    writer.add_tensor(f"{name}.bias", r.bias(EMBD), "F32")


def linear(writer, r, name, rows, columns, bias=True):
    writer.add_tensor(f"{name}.weight", r.matrix(rows, columns), "F32")
    if bias:
        writer.add_tensor(f"{name}.bias", r.bias(rows), "F32")


def rank_head(writer, r, labels=1):
    linear(writer, r, "cls", EMBD, EMBD)
    linear(writer, r, "cls.output", labels, EMBD)


def encoder(name, family, vocabulary, pooling, seed, ff=48, *, types=0, positions=False, fused_qkv=False,
            qkv_bias=True, gate=False, fused_gate=False, ffn_bias=True, mixture=False, second_norm=False,
            rank=False, **more):
    r, writer = Random(seed), Writer()
    if mixture:
        more |= dict(expert_count=U32(EXPERTS), expert_used_count=U32(2), moe_every_n_layers=U32(2))
    keys(writer, name, family, pooling, ff, **more)
    n_vocab = vocabulary(writer)
    writer.add_tensor("token_embd.weight", r.matrix(n_vocab, EMBD, gain=6), "F32")
    if types:
        writer.add_tensor("token_types.weight", r.matrix(types, EMBD, gain=2), "F32")
    if positions:
        writer.add_tensor("position_embd.weight", r.matrix(CONTEXT, EMBD, gain=3), "F32")
    norm(writer, r, "token_embd_norm")
    for i in range(LAYERS):
        b = f"blk.{i}"
        if fused_qkv:
            linear(writer, r, f"{b}.attn_qkv", 3 * EMBD, EMBD, qkv_bias)
        else:
            for part in "qkv":
                linear(writer, r, f"{b}.attn_{part}", EMBD, EMBD, qkv_bias)
        linear(writer, r, f"{b}.attn_output", EMBD, EMBD, qkv_bias)
        norm(writer, r, f"{b}.attn_output_norm")
        if second_norm:
            norm(writer, r, f"{b}.attn_norm_2")
        if mixture and i % 2 == 1:
            writer.add_tensor(f"{b}.ffn_gate_inp.weight", r.matrix(EXPERTS, EMBD, gain=3), "F32")
            writer.add_tensor(f"{b}.ffn_up_exps.weight", r.matrix(EXPERTS, ff, EMBD), "F32")
            writer.add_tensor(f"{b}.ffn_down_exps.weight", r.matrix(EXPERTS, EMBD, ff), "F32")
        else:
            if gate:
                linear(writer, r, f"{b}.ffn_gate", ff, EMBD, False)
            linear(writer, r, f"{b}.ffn_up", 2 * ff if fused_gate else ff, EMBD, ffn_bias and not gate and not fused_gate)
            linear(writer, r, f"{b}.ffn_down", EMBD, ff, ffn_bias)
        norm(writer, r, f"{b}.layer_output_norm")
    if rank:
        rank_head(writer, r)
    writer.write(HERE / "models" / f"{name}.gguf")


def modern_bert(name, pooling, seed, layers=4, ff=48, window=8):
    """Of every three layers the first sees all, the others four tokens on each side."""
    r, writer = Random(seed), Writer()
    keys(writer, name, "modern-bert", pooling, ff, layers=layers, attention__sliding_window=U32(window), rope__freq_base=160000.0,
         rope__freq_base_swa=10000.0)
    n_vocab = bpe(writer, "modern-bert")
    writer.add_tensor("token_embd.weight", r.matrix(n_vocab, EMBD, gain=6), "F32")
    writer.add_tensor("token_embd_norm.weight", r.norm(EMBD), "F32")
    writer.add_tensor("output_norm.weight", r.norm(EMBD), "F32")
    for i in range(layers):
        b = f"blk.{i}"
        if i:
            writer.add_tensor(f"{b}.attn_norm.weight", r.norm(EMBD), "F32")
        linear(writer, r, f"{b}.attn_qkv", 3 * EMBD, EMBD, False)
        linear(writer, r, f"{b}.attn_output", EMBD, EMBD, False)
        writer.add_tensor(f"{b}.ffn_norm.weight", r.norm(EMBD), "F32")
        linear(writer, r, f"{b}.ffn_up", 2 * ff, EMBD, False)
        linear(writer, r, f"{b}.ffn_down", EMBD, ff, False)
    writer.write(HERE / "models" / f"{name}.gguf")


def qwen3(name, pooling, seed, labels=0, ff=48):
    r, writer = Random(seed), Writer()
    keys(writer, name, "qwen3", pooling, ff, causal=True, attention__head_count_kv=U32(1), rope__freq_base=1e6,
         attention__layer_norm_rms_epsilon=1e-6, **({"classifier__output_labels": ["yes", "no"]} if labels else {}))
    n_vocab = bpe(writer)
    d = EMBD // HEADS
    if labels:
        writer.add("tokenizer.chat_template", "{{ messages }}")
        writer.add("tokenizer.chat_template.rerank", "<q>{query}</q><d>{document}</d>")
    writer.add_tensor("token_embd.weight", r.matrix(n_vocab, EMBD, gain=6), "F32")
    writer.add_tensor("output_norm.weight", r.norm(EMBD), "F32")
    for i in range(LAYERS):
        b = f"blk.{i}"
        writer.add_tensor(f"{b}.attn_norm.weight", r.norm(EMBD), "F32")
        linear(writer, r, f"{b}.attn_q", EMBD, EMBD, False)
        linear(writer, r, f"{b}.attn_k", d, EMBD, False)
        linear(writer, r, f"{b}.attn_v", d, EMBD, False)
        linear(writer, r, f"{b}.attn_output", EMBD, EMBD, False)
        writer.add_tensor(f"{b}.attn_q_norm.weight", r.norm(d), "F32")
        writer.add_tensor(f"{b}.attn_k_norm.weight", r.norm(d), "F32")
        writer.add_tensor(f"{b}.ffn_norm.weight", r.norm(EMBD), "F32")
        linear(writer, r, f"{b}.ffn_gate", ff, EMBD, False)
        linear(writer, r, f"{b}.ffn_up", ff, EMBD, False)
        linear(writer, r, f"{b}.ffn_down", EMBD, ff, False)
    if labels:
        linear(writer, r, "cls.output", labels, EMBD, False)
    writer.write(HERE / "models" / f"{name}.gguf")


MEAN, FIRST, LAST, RANK = 1, 2, 3, 4

if __name__ == "__main__":
    encoder("bert", "bert", wordpiece, FIRST, 1, types=2, positions=True)
    encoder("bert-xlmr-rank", "bert", unigram, RANK, 2, types=1, positions=True, rank=True)
    encoder("nomic-bert", "nomic-bert", wordpiece, MEAN, 3, types=2, fused_qkv=True, qkv_bias=False, gate=True,
            ffn_bias=False, rope__freq_base=1000.0)
    encoder("nomic-bert-moe", "nomic-bert-moe", unigram, MEAN, 4, types=1, fused_qkv=True, mixture=True,
            rope__freq_base=10000.0)
    encoder("jina-bert-v2", "jina-bert-v2", wordpiece, MEAN, 5, types=2, gate=True)
    encoder("jina-bert-v2-fused", "jina-bert-v2", wordpiece, MEAN, 6, types=2, fused_gate=True, second_norm=True)
    encoder("jina-bert-v3", "jina-bert-v3", unigram, MEAN, 7, types=1, fused_qkv=True, rope__freq_base=20000.0)
    qwen3("qwen3-embedding", LAST, 8)
    qwen3("qwen3-rank", RANK, 9, labels=2)
    modern_bert("modern-bert", MEAN, 10)
