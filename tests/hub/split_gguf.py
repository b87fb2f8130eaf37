"""A model's file, cut into several as gguf-split does: each is a GGUF file by itself, with some of the tensors; the
first has the model's keys. By hand: `split_gguf.py FILE COUNT STEM` writes STEM-00001-of-0000N.gguf."""
import pathlib
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TEXT, ARRAY = 8, 9
UINT16, INT32 = 2, 5


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 4

    def number(self, letter):
        (value,) = struct.unpack_from("<" + letter, self.data, self.at)
        self.at += struct.calcsize(letter)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def skip(self, kind):
        if kind == TEXT:
            self.text()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip(inner)
        else:
            self.at += SIZES[kind]


def key(name, kind, letter, value):
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I" + letter, kind, value)


def described(name, shape, kind, offset):
    return struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name, len(shape), *shape, kind, offset)


def padded(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def one_part(version, keys, n_keys, number, count, n_all, tensors):
    keys += key("split.no", UINT16, "H", number) + key("split.count", UINT16, "H", count)
    keys += key("split.tensors.count", INT32, "i", n_all)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), n_keys + 3) + keys
    body = b""
    for name, shape, kind, data in tensors:
        head += described(name, shape, kind, len(body))
        body += padded(data)
    return padded(head) + body


def split(data, count, first_is_empty=False):
    """The bytes of each of `count` files. The first may be of keys alone, as --no-tensor-first-split makes it."""
    reader = Reader(data)
    version, n_tensors, n_keys = reader.number("I"), reader.number("Q"), reader.number("Q")
    begin = reader.at
    for _ in range(n_keys):
        reader.text()
        reader.skip(reader.number("I"))
    keys = data[begin : reader.at]
    found = []
    for _ in range(n_tensors):
        name = reader.text()
        shape = [reader.number("Q") for _ in range(reader.number("I"))]
        found.append((name, shape, reader.number("I"), reader.number("Q")))
    start = len(padded(data[: reader.at]))
    ends = sorted([offset for *_, offset in found] + [len(data) - start])
    tensors = [
        (name, shape, kind, data[start + offset : start + ends[ends.index(offset) + 1]])
        for name, shape, kind, offset in found
    ]
    with_tensors = count - first_is_empty
    size = -(-n_tensors // with_tensors)
    groups = [[]] * first_is_empty + [tensors[i * size : (i + 1) * size] for i in range(with_tensors)]
    return [
        one_part(version, keys if i == 0 else b"", n_keys if i == 0 else 0, i, count, n_tensors, group)
        for i, group in enumerate(groups)
    ]


def main():
    path, count, stem = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for i, part in enumerate(split(path.read_bytes(), count), 1):
        pathlib.Path(f"{stem}-{i:05}-of-{count:05}.gguf").write_bytes(part)


if __name__ == "__main__":
    main()
