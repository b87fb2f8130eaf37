"""Writes GGUF files, version 3: metadata, then tensors, all little-endian.

    writer = Writer()
    writer.add("general.architecture", "llama")
    writer.add("llama.block_count", U32(8))
    writer.add_tensor("token_embd.weight", embedding, "Q8_0")
    writer.write("model.gguf")

Metadata keeps the order it was added in, and so do tensors. A Python str, bool, int (as int32), float
(as float32) or a list of one of these is written as it is; U32 and U64 mark the unsigned ones.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct

import numpy as np

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
Q8_BLOCK = 32

# The numbers of value types and tensor types are the format's.
VALUE_U8, VALUE_U32, VALUE_I32, VALUE_F32, VALUE_BOOL, VALUE_STRING, VALUE_ARRAY, VALUE_U64 = 0, 4, 5, 6, 7, 8, 9, 10
TENSOR_TYPES = {"F32": 0, "F16": 1, "Q8_0": 8}
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}  # general.file_type: what most of the tensors are


class U32(int):
    value_type = VALUE_U32


class U64(int):
    value_type = VALUE_U64


def string_bytes(text):
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


PACK = {
    VALUE_U32: lambda value: struct.pack("<I", value),
    VALUE_I32: lambda value: struct.pack("<i", value),
    VALUE_F32: lambda value: struct.pack("<f", value),
    VALUE_BOOL: lambda value: struct.pack("<?", value),
    VALUE_STRING: string_bytes,
    VALUE_U64: lambda value: struct.pack("<Q", value),
}


def value_type(value):
    if isinstance(value, (U32, U64)):
        return value.value_type
    # bool before int: in Python a bool is an int
    for kind, number in ((bool, VALUE_BOOL), (int, VALUE_I32), (float, VALUE_F32), (str, VALUE_STRING)):
        if isinstance(value, kind):
            return number
    raise TypeError(f"GGUF has no value type for {type(value).__name__}")


def value_bytes(value):
    """The type's number and the value."""
    if not isinstance(value, (list, tuple)):
        kind = value_type(value)
        return struct.pack("<I", kind) + PACK[kind](value)
    kinds = {value_type(item) for item in value}
    if len(kinds) != 1:
        raise TypeError("an array needs items, all of one type")
    kind = kinds.pop()
    return struct.pack("<IIQ", VALUE_ARRAY, kind, len(value)) + b"".join(map(PACK[kind], value))


def q8_0_bytes(weights):
    """Blocks of 32 weights of a row: a float16 scale, then 32 int8."""
    if weights.shape[-1] % Q8_BLOCK:
        raise ValueError(f"Q8_0 needs rows that are a multiple of {Q8_BLOCK}, not {weights.shape[-1]}")
    blocks = weights.astype(np.float32).reshape(-1, Q8_BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    # ggml divides by the scale before it is rounded to float16; rounding is half away from zero.
    scaled = np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0)
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    packed = np.zeros(len(blocks), dtype=[("scale", "<f2"), ("weights", "i1", Q8_BLOCK)])
    packed["scale"] = scale[:, 0]
    packed["weights"] = rounded
    return packed.tobytes()


ENCODE = {
    "F32": lambda weights: weights.astype("<f4").tobytes(),
    "F16": lambda weights: weights.astype("<f2").tobytes(),
    "Q8_0": q8_0_bytes,
}


def padding(size):
    return b"\0" * (-size % ALIGNMENT)


class Writer:
    def __init__(self):
        self.metadata = {}
        self.tensors = {}  # name -> (shape, type, bytes)

    def add(self, key, value):
        if key in self.metadata:
            raise ValueError(f"metadata key {key!r} is there already")
        self.metadata[key] = value_bytes(value)

    def add_bytes(self, key, content):
        """An array of unsigned bytes."""
        self.metadata[key] = struct.pack("<IIQ", VALUE_ARRAY, VALUE_U8, len(content)) + content

    def add_tensor(self, name, weights, kind):
        """weights: [rows, columns] or [columns]; a column is what lies side by side in memory."""
        if name in self.tensors:
            raise ValueError(f"tensor {name!r} is there already")
        weights = np.ascontiguousarray(weights)
        self.tensors[name] = (weights.shape, kind, ENCODE[kind](weights))

    def header(self):
        parts = [MAGIC, struct.pack("<IQQ", VERSION, len(self.tensors), len(self.metadata))]
        parts += [string_bytes(key) + value for key, value in self.metadata.items()]
        offset = 0
        for name, (shape, kind, content) in self.tensors.items():
            dimensions = shape[::-1]  # GGUF names the fastest axis first
            parts.append(string_bytes(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions,
                                                          TENSOR_TYPES[kind], offset))
            offset += len(content) + len(padding(len(content)))
        return b"".join(parts)

    def write(self, path):
        header = self.header()
        with open(path, "wb") as file:
            file.write(header + padding(len(header)))
            for _, _, content in self.tensors.values():
                file.write(content + padding(len(content)))
