"""Asks llama.cpp's libmtmd for the rows that models/*.gguf make of drawn pictures: models/NAME.json, NAME.rows.f32.

    ./dev anchor python3 tests/golden/pictures/reference.py [NAME...]

Debian has the library and not its header, so what is called is declared here, from the documentation in mtmd.h and
llama.h. Structs that go by value are larger here than there: the callee reads its own part. Where their fields lie was
read off the defaults that the library itself gives (check_layout()).
"""

import ctypes as c
import json
import math
import pathlib
import struct
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "more"))
import drawn  # noqa: E402

MODELS = HERE.parent / "models"
# By the projector's name: the golden language model it is opened with, pictures (width, height), numbers a row. A
# family and its keys: the model is given that family's name first (language()).
SECTIONS = ("rope.dimension_sections", "i", [4, 2, 2, 0])
CASES = {"gemma3": ("gemma3", None, ((32, 32), (47, 30)), 64),
         "gemma3-f16": ("gemma3", None, ((32, 32), (47, 30)), 64),
         "qwen2vl": ("qwen2", ("qwen2vl", SECTIONS), ((40, 24), (61, 90)), 64),
         "qwen2.5vl": ("qwen2", ("qwen2vl", SECTIONS), ((160, 176), (100, 47)), 64),
         "qwen3vl": ("qwen3", ("qwen3vl", SECTIONS, ("n_deepstack_layers", "I", 1)), ((40, 24), (61, 90)), 128)}


class Header(drawn.Header):
    def text(self):  # tokens may be any bytes
        size = self.number("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("latin-1")


def language(source, family, more, path):
    """A golden language model as one of a family that sees: the same tensors, its keys renamed, `more` added."""
    data = (MODELS / f"{source}.gguf").read_bytes()
    header = Header(data)
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    header.at, pairs, name = 24, [], None
    for _ in range(n_keys):
        key, begin = header.text(), header.at
        value = header.value(header.number("<I"))
        name = value if key == "general.architecture" else name
        pairs.append((key, data[begin:header.at]))
    infos, begin = header.at, header.begin
    for _ in range(n_tensors):
        header.text()
        n_dims = header.number("<I")
        header.at += 8 * n_dims + 12
    infos = data[infos:header.at]

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode("latin-1")

    out = []
    for key, value in pairs:
        if key == "general.architecture":
            value = struct.pack("<I", 8) + text(family)
        out.append(text(family + key[len(name):] if key.startswith(name + ".") else key) + value)
    for key, kind, value in more:
        number = {"i": 5, "I": 4}[kind]
        out.append(text(f"{family}.{key}") + (
            struct.pack(f"<IIQ{len(value)}{kind}", 9, number, len(value), *value) if isinstance(value, list)
            else struct.pack(f"<I{kind}", number, value)))
    head = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, len(out)) + b"".join(out) + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data[begin:])


class Params(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 512)]

    def get(self, offset, kind):
        return struct.unpack_from(kind, self.bytes, offset)[0]

    def put(self, offset, kind, value):
        struct.pack_into(kind, self.bytes, offset, value)


class Text(c.Structure):
    _fields_ = [("text", c.c_char_p), ("add_special", c.c_bool), ("parse_special", c.c_bool)]


llama, mtmd, ggml = c.CDLL("libllama.so.0"), c.CDLL("libmtmd.so.0"), c.CDLL("libggml.so.0")
LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
lines = []
log = LOG(lambda level, text, user: lines.append(text.decode(errors="replace")))
for library, name, result, arguments in (
        (llama, "llama_model_default_params", Params, []),
        (llama, "llama_model_load_from_file", c.c_void_p, [c.c_char_p, Params]),
        (llama, "llama_model_free", None, [c.c_void_p]),
        (mtmd, "mtmd_context_params_default", Params, []),
        (mtmd, "mtmd_init_from_file", c.c_void_p, [c.c_char_p, c.c_void_p, Params]),
        (mtmd, "mtmd_free", None, [c.c_void_p]),
        (mtmd, "mtmd_bitmap_init", c.c_void_p, [c.c_uint32, c.c_uint32, c.c_char_p]),
        (mtmd, "mtmd_bitmap_free", None, [c.c_void_p]),
        (mtmd, "mtmd_input_chunks_init", c.c_void_p, []),
        (mtmd, "mtmd_input_chunks_size", c.c_size_t, [c.c_void_p]),
        (mtmd, "mtmd_input_chunks_get", c.c_void_p, [c.c_void_p, c.c_size_t]),
        (mtmd, "mtmd_input_chunks_free", None, [c.c_void_p]),
        (mtmd, "mtmd_input_chunk_get_type", c.c_int, [c.c_void_p]),
        (mtmd, "mtmd_input_chunk_get_n_tokens", c.c_size_t, [c.c_void_p]),
        (mtmd, "mtmd_input_chunk_get_n_pos", c.c_int32, [c.c_void_p]),
        (mtmd, "mtmd_input_chunk_get_tokens_image", c.c_void_p, [c.c_void_p]),
        (mtmd, "mtmd_image_tokens_get_nx", c.c_size_t, [c.c_void_p]),
        (mtmd, "mtmd_image_tokens_get_ny", c.c_size_t, [c.c_void_p]),
        (mtmd, "mtmd_tokenize", c.c_int32, [c.c_void_p, c.c_void_p, c.POINTER(Text), c.POINTER(c.c_void_p), c.c_size_t]),
        (mtmd, "mtmd_encode_chunk", c.c_int32, [c.c_void_p, c.c_void_p]),
        (mtmd, "mtmd_get_output_embd", c.POINTER(c.c_float), [c.c_void_p]),
        (mtmd, "mtmd_decode_use_non_causal", c.c_bool, [c.c_void_p]),
        (mtmd, "mtmd_decode_use_mrope", c.c_bool, [c.c_void_p]),
        (mtmd, "mtmd_log_set", None, [LOG, c.c_void_p]),
        (mtmd, "mtmd_helper_log_set", None, [LOG, c.c_void_p]),
        (llama, "llama_log_set", None, [LOG, c.c_void_p])):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
USE_GPU, N_THREADS, FLASH, WARMUP = (0, "?"), (20, "i"), (40, "i"), (44, "?")


def check_layout(params):
    if (params.get(*USE_GPU), params.get(*N_THREADS), params.get(*FLASH), params.get(*WARMUP)) != (True, 4, -1, True):
        raise RuntimeError("another libmtmd: its parameters lie elsewhere")


def picture(width, height, seed):
    """Slopes, a wave and noise, drawn by one linear congruential generator: test_projector.c draws the same."""
    state, pixels = seed, bytearray()
    for y in range(height):
        for x in range(width):
            for channel in range(3):
                state = (state * 1664525 + 1013904223) % (1 << 32)
                slope = (x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height))[channel]
                pixels.append((slope + (state >> 26)) % 256)
    return bytes(pixels)


def rows_of(context, width, height, seed, embd, flags):
    bitmap = c.c_void_p(mtmd.mtmd_bitmap_init(width, height, picture(width, height, seed)))
    chunks = mtmd.mtmd_input_chunks_init()
    text = Text(b"<__media__>", False, True)
    if mtmd.mtmd_tokenize(context, chunks, c.byref(text), c.byref(bitmap), 1):
        raise RuntimeError("mtmd_tokenize failed: " + "".join(lines[-5:]))
    for i in range(mtmd.mtmd_input_chunks_size(chunks)):
        chunk = mtmd.mtmd_input_chunks_get(chunks, i)
        if mtmd.mtmd_input_chunk_get_type(chunk) == 1:
            break
    n_rows = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
    image = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
    if mtmd.mtmd_encode_chunk(context, chunk):
        raise RuntimeError("mtmd_encode_chunk failed: " + "".join(lines[-5:]))
    rows = mtmd.mtmd_get_output_embd(context)[:n_rows * embd]
    about = {"width": width, "height": height, "seed": seed, "n_rows": n_rows,
             "grid": [mtmd.mtmd_image_tokens_get_nx(image), mtmd.mtmd_image_tokens_get_ny(image)],
             "n_positions": mtmd.mtmd_input_chunk_get_n_pos(chunk)}
    mtmd.mtmd_input_chunks_free(chunks)
    mtmd.mtmd_bitmap_free(bitmap)
    return about, rows


def make(path, source, family, pictures, width):
    golden = MODELS / f"{source}.gguf"
    with tempfile.TemporaryDirectory() as folder:
        if family:
            golden = pathlib.Path(folder) / "language.gguf"
            language(source, family[0], family[1:], golden)
        model = llama.llama_model_load_from_file(str(golden).encode(), llama.llama_model_default_params())
    if not model:
        raise RuntimeError(f"{path.name}: {''.join(lines[-12:])}")
    params = mtmd.mtmd_context_params_default()
    check_layout(params)
    params.put(*USE_GPU, False)
    params.put(*N_THREADS, 1)
    params.put(*FLASH, 0)
    params.put(*WARMUP, False)
    context = mtmd.mtmd_init_from_file(str(path).encode(), model, params)
    if not context:
        raise RuntimeError(f"{path.name}: {''.join(lines[-12:])}")
    out = {"projector": path.stem, "width": width, "is_whole": mtmd.mtmd_decode_use_non_causal(context),
           "mrope": mtmd.mtmd_decode_use_mrope(context), "pictures": []}
    rows = []
    for seed, (w, h) in enumerate(pictures, 1):
        about, values = rows_of(context, w, h, seed, width, out)
        out["pictures"].append(about)
        rows += values
    deviation = math.sqrt(sum(v * v for v in rows) / len(rows))
    print(path.stem, [(p["n_rows"], p["grid"]) for p in out["pictures"]], f"rms {deviation:.3g}")
    (HERE / "models" / f"{path.stem}.json").write_text(json.dumps(out, indent=1) + "\n")
    (HERE / "models" / f"{path.stem}.rows.f32").write_bytes(struct.pack(f"<{len(rows)}f", *rows))
    mtmd.mtmd_free(context)
    llama.llama_model_free(model)


if __name__ == "__main__":
    mtmd.mtmd_log_set(log, None)
    llama.llama_log_set(log, None)
    ggml.ggml_backend_load_all()
    wanted = sys.argv[1:]
    for projector in sorted((HERE / "models").glob("*.gguf")):
        if not wanted or projector.stem in wanted:
            make(projector, *CASES[projector.stem])
