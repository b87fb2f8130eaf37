#!/usr/bin/env python3
"""Writes the trained model as a GGUF file: Q8_0 matrices, F32 norms, the tokenizer, the chat template."""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gguf_writer import FILE_TYPES, U32, Writer
from tokenizer import SPECIALS, Tokenizer

NAME = "Medley Stories"
NORMAL, CONTROL = 1, 3  # token types

# As stories.render writes the texts to train on; other roles, which the model has never seen, are
# left out. The begin token is left to add_bos_token.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] in ['user', 'assistant'] -%}"
    "{{- '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}"
)


def add_general(writer, parameters):
    writer.add("general.architecture", "llama")
    writer.add("general.type", "model")
    writer.add("general.name", NAME)
    writer.add("general.size_label", f"{parameters / 1e6:.1f}M")
    writer.add("general.description", "Tells short children's stories; made for Medley's demo and tests.")
    writer.add("general.file_type", U32(FILE_TYPES["Q8_0"]))
    writer.add("general.quantization_version", U32(2))
    writer.add("general.alignment", U32(32))


def add_architecture(writer, config):
    writer.add("llama.vocab_size", U32(config["vocab"]))
    writer.add("llama.context_length", U32(config["context"]))
    writer.add("llama.embedding_length", U32(config["width"]))
    writer.add("llama.block_count", U32(config["layers"]))
    writer.add("llama.feed_forward_length", U32(config["ff"]))
    writer.add("llama.attention.head_count", U32(config["heads"]))
    writer.add("llama.attention.head_count_kv", U32(config["kv_heads"]))
    writer.add("llama.attention.layer_norm_rms_epsilon", config["epsilon"])
    writer.add("llama.rope.freq_base", config["rope_base"])
    writer.add("llama.rope.dimension_count", U32(config["width"] // config["heads"]))


def add_tokenizer(writer, tokenizer):
    kinds = [CONTROL if token in SPECIALS else NORMAL for token in tokenizer.tokens]
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "llama-bpe")
    writer.add("tokenizer.ggml.tokens", tokenizer.tokens)
    writer.add("tokenizer.ggml.token_type", kinds)
    writer.add("tokenizer.ggml.merges", [f"{a} {b}" for a, b in tokenizer.merges])
    writer.add("tokenizer.ggml.bos_token_id", U32(tokenizer.bos))
    writer.add("tokenizer.ggml.eos_token_id", U32(tokenizer.eos))
    writer.add("tokenizer.ggml.eot_token_id", U32(tokenizer.eos))
    writer.add("tokenizer.ggml.add_bos_token", True)
    writer.add("tokenizer.ggml.add_eos_token", False)
    writer.add("tokenizer.chat_template", CHAT_TEMPLATE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="the folder that train.py left its checkpoint in")
    parser.add_argument("gguf", type=Path)
    options = parser.parse_args()
    config = json.loads((options.work / "config.json").read_text())
    state = torch.load(options.work / "checkpoint.pt", map_location="cpu")
    weights = {name: weight.float().numpy() for name, weight in state["model"].items()}

    writer = Writer()
    add_general(writer, sum(weight.size for weight in weights.values()))
    add_architecture(writer, config)
    add_tokenizer(writer, Tokenizer.load(options.work / "tokenizer.json"))
    # The embedding is the output too: there is no output.weight. q and k are trained with the pairs
    # (2i, 2i+1) that the file format means, so nothing is permuted.
    for name, weight in weights.items():
        writer.add_tensor(name, weight, "F32" if weight.ndim == 1 else "Q8_0")
    options.gguf.parent.mkdir(parents=True, exist_ok=True)
    writer.write(options.gguf)
    print(f"{options.gguf}: {options.gguf.stat().st_size} bytes, trained for {state['step']} steps")


if __name__ == "__main__":
    main()
