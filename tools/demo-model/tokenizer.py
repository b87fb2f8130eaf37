"""A small byte-level BPE tokenizer: learns its merges from text, encodes and decodes.

It is GPT-2's scheme (tokenizer.ggml.model "gpt2") with the split of Llama 3 (pre "llama-bpe"): text is
cut into words by a pattern, the bytes of a word are written with printable letters, and within a word
the pair that was learned first is merged first. Ids: the 256 bytes, the merges in the order they were
learned, the special tokens.
"""

import heapq
import json
import re
from collections import Counter, defaultdict

SPECIALS = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
BOS, EOS = "<|begin|>", "<|end|>"

# Llama 3's pattern. Python's re knows no \p{L}: [^\W\d_] is the same for letters.
SPLIT = re.compile(
    r"'(?i:s|t|re|ve|m|ll|d)|(?:[^\w\r\n]|_)?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL_SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")


def byte_letters():
    """GPT-2's letter for every byte: itself if it prints, else one from U+0100 on."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in prints}
    others = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(256 + n) for n, byte in enumerate(others)})
    return letters


LETTER = byte_letters()
BYTE = {letter: byte for byte, letter in LETTER.items()}


def spell(word):
    return "".join(LETTER[byte] for byte in word.encode())


def merge_pair(symbols, pair):
    """The symbols with every occurrence of the pair, left to right, made one."""
    merged, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            merged.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


def learn_merges(texts, count):
    """The `count` most frequent pairs, each counted after the merges before it. Ties: by spelling."""
    frequency = Counter(word for text in texts for part in SPECIAL_SPLIT.split(text)
                        if part not in SPECIALS for word in SPLIT.findall(part))
    words = [(list(spell(word)), n) for word, n in sorted(frequency.items())]
    pairs, where = Counter(), defaultdict(set)
    for index, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += n
            where[pair].add(index)
    heap = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while len(merges) < count and heap:
        negative, pair = heapq.heappop(heap)
        if -negative != pairs[pair]:  # out of date: put back with its present count
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        merges.append(pair)
        touched = set()
        for index in sorted(where.pop(pair)):
            symbols, n = words[index]
            merged = merge_pair(symbols, pair)
            for old in zip(symbols, symbols[1:]):
                pairs[old] -= n
            for new in zip(merged, merged[1:]):
                pairs[new] += n
                where[new].add(index)
                touched.add(new)
            words[index] = (merged, n)
        for new in touched:
            heapq.heappush(heap, (-pairs[new], new))
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(pair) for pair in merges]
        self.tokens = [LETTER[byte] for byte in range(256)] + [a + b for a, b in self.merges] + SPECIALS
        self.ids = {token: n for n, token in enumerate(self.tokens)}
        assert len(self.ids) == len(self.tokens), "two merges spell the same token"
        self.ranks = {pair: n for n, pair in enumerate(self.merges)}
        self.bos, self.eos = self.ids[BOS], self.ids[EOS]
        self.known = {}  # word -> ids
        self.check_whole_tokens()

    def check_whole_tokens(self):
        """Some readers take a word that is a token as it is ("ignore merges"): it must not matter."""
        for a, b in self.merges:
            assert self.merge(a + b) == [a + b], f"token {a + b!r} is not what its merges make"

    @classmethod
    def learn(cls, texts, size):
        return cls(learn_merges(texts, size - 256 - len(SPECIALS)))

    @classmethod
    def load(cls, path):
        with open(path) as file:
            return cls(json.load(file)["merges"])

    def save(self, path):
        with open(path, "w") as file:
            json.dump({"merges": self.merges}, file)

    def merge(self, spelled):
        symbols = list(spelled)
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            symbols = merge_pair(symbols, best)
        return symbols

    def encode(self, text):
        """The ids of a text; special tokens written out in it become theirs. Adds no BOS."""
        ids = []
        for part in SPECIAL_SPLIT.split(text):
            if part in SPECIALS:
                ids.append(self.ids[part])
                continue
            for word in SPLIT.findall(part):
                if word not in self.known:
                    self.known[word] = [self.ids[symbol] for symbol in self.merge(spell(word))]
                ids += self.known[word]
        return ids

    def decode(self, ids):
        pieces = (self.tokens[n].encode() if n >= len(self.tokens) - len(SPECIALS)
                  else bytes(BYTE[letter] for letter in self.tokens[n]) for n in ids)
        return b"".join(pieces).decode(errors="replace")
