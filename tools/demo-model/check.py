#!/usr/bin/env python3
"""Reads a GGUF of the demo model back and runs it in numpy: held-out perplexity, samples, chat template.

Nothing here is shared with training or with the writer but the tokenizer, so that a mistake in one of
them (a permuted tensor, a wrong scale, a key that is missing) shows as a bad perplexity.
"""

import argparse
import math
import struct
from pathlib import Path

import numpy as np

import data
from tokenizer import BYTE, Tokenizer

READ = {4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}
STRING, ARRAY = 8, 9


# ---- the file ----------------------------------------------------------------------------------


class Reader:
    def __init__(self, path):
        self.bytes, self.at = Path(path).read_bytes(), 0

    def take(self, form):
        value, = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.take("<Q")
        self.at += size
        return self.bytes[self.at - size:self.at].decode()

    def value(self, kind=None):
        kind = self.take("<I") if kind is None else kind
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, count = self.take("<I"), self.take("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.take(READ[kind])

    def tensor(self, start, shape, kind):
        """The weights as float32, [rows, columns] or [columns]."""
        count = math.prod(shape)
        if kind == 0:
            weights = np.frombuffer(self.bytes, "<f4", count, start)
        elif kind == 1:
            weights = np.frombuffer(self.bytes, "<f2", count, start)
        else:
            blocks = np.frombuffer(self.bytes, np.dtype([("scale", "<f2"), ("q", "i1", 32)]), count // 32, start)
            weights = blocks["scale"].astype(np.float32)[:, None] * blocks["q"]
        return weights.astype(np.float32).reshape(shape[::-1])


def read_gguf(path):
    """The metadata and the tensors."""
    reader = Reader(path)
    assert reader.bytes[:4] == b"GGUF" and struct.unpack_from("<I", reader.bytes, 4)[0] == 3
    reader.at = 8
    tensors, keys = reader.take("<Q"), reader.take("<Q")
    metadata = {reader.string(): reader.value() for _ in range(keys)}
    infos = []
    for _ in range(tensors):
        name, dimensions = reader.string(), reader.take("<I")
        shape = tuple(reader.take("<Q") for _ in range(dimensions))
        infos.append((name, shape, reader.take("<I"), reader.take("<Q")))
    alignment = metadata.get("general.alignment", 32)
    base = -(-reader.at // alignment) * alignment
    assert all(offset % alignment == 0 for *_, offset in infos)
    return metadata, {name: reader.tensor(base + offset, shape, kind) for name, shape, kind, offset in infos}


# ---- the model ---------------------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Model:
    def __init__(self, path):
        self.metadata, self.weights = read_gguf(path)
        meta = {key.removeprefix("llama."): value for key, value in self.metadata.items()}
        self.layers, self.heads = meta["block_count"], meta["attention.head_count"]
        self.kv_heads, self.epsilon = meta["attention.head_count_kv"], meta["attention.layer_norm_rms_epsilon"]
        self.head, self.base = meta["rope.dimension_count"], meta["rope.freq_base"]
        self.context = meta["context_length"]
        merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
        self.tokenizer = Tokenizer(merges)
        assert self.tokenizer.tokens == meta["tokenizer.ggml.tokens"] and len(BYTE) == 256
        assert self.tokenizer.eos == meta["tokenizer.ggml.eos_token_id"]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weights[name]

    def rope(self, x, first):
        """x: [tokens, heads, head]; pairs are (2i, 2i+1)."""
        half = self.head // 2
        angles = np.outer(np.arange(first, first + len(x)), self.base ** (-np.arange(half) / half))[:, None]
        cos, sin = np.cos(angles), np.sin(angles)
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    def attention(self, x, prefix, cache):
        """cache holds the keys and values of the tokens before, and gets those of x."""
        tokens, first = len(x), len(cache[0]) if cache else 0
        q, k, v = (x @ self.weights[f"{prefix}attn_{name}.weight"].T for name in "qkv")
        q = self.rope(q.reshape(tokens, self.heads, self.head), first)
        k = self.rope(k.reshape(tokens, self.kv_heads, self.head), first)
        v = v.reshape(tokens, self.kv_heads, self.head)
        if cache:
            k, v = np.concatenate((cache[0], k)), np.concatenate((cache[1], v))
        cache[:] = k, v
        group = self.heads // self.kv_heads
        keys, values = k.repeat(group, 1).transpose(1, 2, 0), v.repeat(group, 1).transpose(1, 0, 2)
        scores = q.transpose(1, 0, 2) @ keys / math.sqrt(self.head)
        scores += np.triu(np.full((tokens, len(k)), -np.inf), first + 1)
        mixed = (softmax(scores) @ values).transpose(1, 0, 2).reshape(tokens, -1)
        return mixed.astype(np.float32) @ self.weights[f"{prefix}attn_output.weight"].T

    def forward(self, ids, caches):
        """Logits [tokens, vocab]; caches: a list per layer, empty at first."""
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            prefix = f"blk.{layer}."
            x = x + self.attention(self.norm(x, prefix + "attn_norm.weight"), prefix, caches[layer])
            normed = self.norm(x, prefix + "ffn_norm.weight")
            gate, up = (normed @ self.weights[f"{prefix}ffn_{name}.weight"].T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weights[prefix + "ffn_down.weight"].T
        return self.norm(x, "output_norm.weight") @ self.weights["token_embd.weight"].T

    def losses(self, text):
        """The loss of every token of the text, in nats."""
        ids = [self.tokenizer.bos, *self.tokenizer.encode(text)]
        probabilities = softmax(self.forward(ids[:-1], [[] for _ in range(self.layers)]).astype(np.float64))
        return -np.log(probabilities[np.arange(len(ids) - 1), ids[1:]])

    def generate(self, prompt, rng, temperature):
        """What follows the prompt, and whether it came to its end by itself."""
        ids, made = [self.tokenizer.bos, *self.tokenizer.encode(prompt)], []
        caches = [[] for _ in range(self.layers)]
        logits = self.forward(ids, caches)[-1]
        while len(ids) + len(made) < self.context:
            made.append(int(rng.choice(len(logits), p=softmax(logits.astype(np.float64) / temperature))))
            if made[-1] == self.tokenizer.eos:
                return self.tokenizer.decode(made[:-1]), True
            logits = self.forward(made[-1:], caches)[-1]
        return self.tokenizer.decode(made), False


# ---- the checks --------------------------------------------------------------------------------


def render(template, messages):
    import jinja2
    return jinja2.Template(template).render(messages=messages, add_generation_prompt=True)


def perplexity(model, texts):
    losses = np.concatenate([model.losses(text) for text in texts])
    return math.exp(losses.mean()), len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--heldout", type=Path, help="heldout.txt that data.py wrote")
    parser.add_argument("--texts", type=int, default=200, help="how many of the held-out texts to read")
    parser.add_argument("--sample", action="append", default=[], metavar="TEXT", help="ask for this")
    parser.add_argument("--plain", type=int, default=0, metavar="N", help="write N stories without being asked")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.7)
    options = parser.parse_args()
    model = Model(options.gguf)
    rng = np.random.default_rng(options.seed)
    if options.heldout:
        texts = options.heldout.read_text().split(data.SEPARATOR)[:options.texts]
        value, count = perplexity(model, texts)
        print(f"held-out perplexity {value:.4f} over {count} tokens of {len(texts)} texts")
    template = model.metadata["tokenizer.chat_template"]
    prompts = [render(template, [{"role": "user", "content": asked}]) for asked in options.sample] + [""] * options.plain
    for prompt in prompts:
        text, ended = model.generate(prompt, rng, options.temperature)
        print(f"\n---- {prompt!r}{'' if ended else ' (did not end)'}\n{text}")


if __name__ == "__main__":
    main()
