#!/usr/bin/env python3
"""Writes what the model is trained and judged on: tokenizer.json, train.npz, heldout.txt.

train.npz holds the tokens of all texts one after another, <|begin|> before each, and where each text
starts. The held-out texts come from another seed, and one that is also among the training texts is
dropped.
"""

import argparse
import random
from pathlib import Path

import numpy as np

import stories
from tokenizer import Tokenizer

VOCABULARY = 2048
CONTEXT = 512
TOKENIZER_TEXTS = 12000
SEPARATOR = "\0"  # between the held-out texts


def documents(seed, count):
    rng = random.Random(seed)
    return [stories.document(rng) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=35000)
    parser.add_argument("--heldout", type=int, default=300)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    train = documents(options.seed, options.texts)
    tokenizer = Tokenizer.learn(train[:TOKENIZER_TEXTS], VOCABULARY)
    tokenizer.save(options.work / "tokenizer.json")

    def fits(ids):
        return len(ids) < CONTEXT

    texts = [[tokenizer.bos, *ids] for ids in filter(fits, map(tokenizer.encode, train))]
    tokens = np.concatenate([np.array(text, dtype=np.uint16) for text in texts])
    starts = np.cumsum([0, *map(len, texts)])
    np.savez(options.work / "train.npz", tokens=tokens, starts=starts)

    seen = set(train)
    heldout = [text for text in documents(options.seed + 1, options.heldout)
               if text not in seen and fits(tokenizer.encode(text))]
    (options.work / "heldout.txt").write_text(SEPARATOR.join(heldout))
    print(f"{len(texts)} texts, {len(tokens)} tokens to train on; {len(heldout)} texts held out")


if __name__ == "__main__":
    main()
