"""Asks llama.cpp's libmtmd for the rows that models/*.gguf make of drawn pictures: models/NAME.json, NAME.rows.f32;
and for the logits of a language model that goes with it, after text, the first picture and text again: NAME.logits.f32.

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

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent
# By the projector's name: the language model it is opened with, pictures (width, height), numbers a row.
CASES = {"gemma3": ("models/gemma3", ((32, 32), (47, 30)), 64),
         "gemma3-f16": ("models/gemma3", ((32, 32), (47, 30)), 64),
         "qwen2vl": ("pictures/models/language-qwen2vl", ((40, 24), (61, 90)), 32),
         "qwen2.5vl": ("pictures/models/language-qwen2vl", ((160, 176), (100, 47)), 32),
         "qwen3vl": ("pictures/models/language-qwen3vl", ((40, 24), (61, 90)), 64)}
BEFORE, AFTER = [5, 17, 200, 33], [44, 101, 7, 250, 19, 60, 211, 88]


class Params(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 512)]

    def get(self, offset, kind):
        return struct.unpack_from(kind, self.bytes, offset)[0]

    def put(self, offset, kind, value):
        struct.pack_into(kind, self.bytes, offset, value)


class Text(c.Structure):
    _fields_ = [("text", c.c_char_p), ("add_special", c.c_bool), ("parse_special", c.c_bool)]


class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.POINTER(c.c_float)),
                ("pos", c.POINTER(c.c_int32)), ("n_seq_id", c.POINTER(c.c_int32)),
                ("seq_id", c.POINTER(c.POINTER(c.c_int32))), ("logits", c.POINTER(c.c_int8))]


llama, mtmd, ggml = c.CDLL("libllama.so.0"), c.CDLL("libmtmd.so.0"), c.CDLL("libggml.so.0")
LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
lines = []
log = LOG(lambda level, text, user: lines.append(text.decode(errors="replace")))
for library, name, result, arguments in (
        (llama, "llama_model_default_params", Params, []),
        (llama, "llama_model_load_from_file", c.c_void_p, [c.c_char_p, Params]),
        (llama, "llama_model_get_vocab", c.c_void_p, [c.c_void_p]),
        (llama, "llama_vocab_n_tokens", c.c_int32, [c.c_void_p]),
        (llama, "llama_model_free", None, [c.c_void_p]),
        (llama, "llama_context_default_params", Params, []),
        (llama, "llama_init_from_model", c.c_void_p, [c.c_void_p, Params]),
        (llama, "llama_free", None, [c.c_void_p]),
        (llama, "llama_batch_init", Batch, [c.c_int32, c.c_int32, c.c_int32]),
        (llama, "llama_batch_free", None, [Batch]),
        (llama, "llama_decode", c.c_int32, [c.c_void_p, Batch]),
        (llama, "llama_get_logits_ith", c.POINTER(c.c_float), [c.c_void_p, c.c_int32]),
        (mtmd, "mtmd_helper_decode_image_chunk", c.c_int32,
         [c.c_void_p, c.c_void_p, c.c_void_p, c.POINTER(c.c_float), c.c_int32, c.c_int32, c.c_int32,
          c.POINTER(c.c_int32), c.c_void_p, c.c_void_p]),
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


N_CTX, N_BATCH, N_UBATCH, THREADS, THREADS_BATCH = (0, "I"), (4, "I"), (8, "I"), (28, "i"), (32, "i")
ATTENTION_FLASH, TYPE_K, TYPE_V = (52, "i"), (104, "i"), (108, "i")


def check_layout(params):
    if (params.get(*USE_GPU), params.get(*N_THREADS), params.get(*FLASH), params.get(*WARMUP)) != (True, 4, -1, True):
        raise RuntimeError("another libmtmd: its parameters lie elsewhere")


def context_params():
    """One thread, the whole prompt at once, no flash attention, an F32 cache: as the other golden logits."""
    params = llama.llama_context_default_params()
    seen = [params.get(*f) for f in (N_CTX, N_BATCH, N_UBATCH, THREADS, THREADS_BATCH, ATTENTION_FLASH, TYPE_K, TYPE_V)]
    if seen != [512, 2048, 512, 4, 4, -1, 1, 1]:
        raise RuntimeError("another libllama: its parameters lie elsewhere")
    for field, value in ((N_CTX, 256), (N_BATCH, 256), (N_UBATCH, 256), (THREADS, 1), (THREADS_BATCH, 1),
                         (ATTENTION_FLASH, 0), (TYPE_K, 0), (TYPE_V, 0)):
        params.put(*field, value)
    return params


def decode(context, tokens, first, n_vocab):
    batch = llama.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, first + i, 1, 1
        batch.seq_id[i][0] = 0
    if llama.llama_decode(context, batch):
        raise RuntimeError("llama_decode failed: " + "".join(lines[-5:]))
    rows = [llama.llama_get_logits_ith(context, i)[:n_vocab] for i in range(len(tokens))]
    llama.llama_batch_free(batch)
    return [value for row in rows for value in row]


def logits_of(model, vision, width, height, seed, n_vocab):
    """Of text, a picture and text again; after each token of the text."""
    context = llama.llama_init_from_model(model, context_params())
    if not context:
        raise RuntimeError("".join(lines[-5:]))
    chunks, chunk = chunk_of(vision, width, height, seed)
    values, after = decode(context, BEFORE, 0, n_vocab), c.c_int32(0)
    if mtmd.mtmd_encode_chunk(vision, chunk) or mtmd.mtmd_helper_decode_image_chunk(
            vision, context, chunk, mtmd.mtmd_get_output_embd(vision), len(BEFORE), 0, 256, c.byref(after), None, None):
        raise RuntimeError("the picture was not decoded: " + "".join(lines[-5:]))
    values += decode(context, AFTER, after.value, n_vocab)
    mtmd.mtmd_input_chunks_free(chunks)
    llama.llama_free(context)
    return values, after.value


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


def chunk_of(context, width, height, seed):
    bitmap = c.c_void_p(mtmd.mtmd_bitmap_init(width, height, picture(width, height, seed)))
    chunks = mtmd.mtmd_input_chunks_init()
    text = Text(b"<__media__>", False, True)
    if mtmd.mtmd_tokenize(context, chunks, c.byref(text), c.byref(bitmap), 1):
        raise RuntimeError("mtmd_tokenize failed: " + "".join(lines[-5:]))
    mtmd.mtmd_bitmap_free(bitmap)
    for i in range(mtmd.mtmd_input_chunks_size(chunks)):
        chunk = mtmd.mtmd_input_chunks_get(chunks, i)
        if mtmd.mtmd_input_chunk_get_type(chunk) == 1:
            return chunks, chunk
    raise RuntimeError("no picture among the chunks")


def rows_of(context, width, height, seed, embd):
    chunks, chunk = chunk_of(context, width, height, seed)
    n_rows = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
    image = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
    if mtmd.mtmd_encode_chunk(context, chunk):
        raise RuntimeError("mtmd_encode_chunk failed: " + "".join(lines[-5:]))
    rows = mtmd.mtmd_get_output_embd(context)[:n_rows * embd]
    about = {"width": width, "height": height, "seed": seed, "n_rows": n_rows,
             "grid": [mtmd.mtmd_image_tokens_get_nx(image), mtmd.mtmd_image_tokens_get_ny(image)],
             "n_positions": mtmd.mtmd_input_chunk_get_n_pos(chunk)}
    mtmd.mtmd_input_chunks_free(chunks)
    return about, rows


def make(path, language, pictures, width):
    model = llama.llama_model_load_from_file(str(GOLDEN / f"{language}.gguf").encode(), llama.llama_model_default_params())
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
        about, values = rows_of(context, w, h, seed, width)
        out["pictures"].append(about)
        rows += values
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    logits, position = logits_of(model, context, *pictures[0], 1, n_vocab)
    out |= {"language": language, "before": BEFORE, "after": AFTER, "position_after": position, "n_vocab": n_vocab}
    (HERE / "models" / f"{path.stem}.logits.f32").write_bytes(struct.pack(f"<{len(logits)}f", *logits))
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
        if projector.stem in CASES and (not wanted or projector.stem in wanted):
            make(projector, *CASES[projector.stem])
