"""Models of drawn shapes and seeds against llama.cpp's server: what the tables' golden models do not show.

    ./dev shell  python3 tests/golden/more/drawn.py make FOLDER [COUNT=4] [FIRST SEED=1]
    ./dev shell  python3 tests/golden/more/drawn.py shuffle FOLDER [COUNT=4] [FIRST SEED=1] [MODEL...]
    ./dev anchor python3 tests/golden/more/drawn.py ask FOLDER
    ./dev shell  python3 tests/golden/more/drawn.py compare FOLDER [MEDLEY=build/release/src/cli/medley]

The server gives the logarithms of all tokens' chances after each prefix; `compare` takes the largest difference to
those of `medley logits`. Two experts nearly alike can part the two by more than 0.01: look at such a row by itself.
`make` draws gemma4, dense and as a mixture. `shuffle` takes golden models of F32 (those of the families that came last
where none is named) and puts the values of every tensor into a drawn order: other weights in the same shapes. Needs
numpy, but for `ask`.
"""

import json
import pathlib
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PORT, PROMPT = 18437, 20
LETTER = 64  # what the server is made to say: it tells no chances beside half a character or an end


def gemma4(path, seed):
    import numpy as np
    sys.path[:0] = [str(HERE.parent / "embeddings"), str(HERE.parents[2] / "tools")]
    from gguf_writer import U32, Writer
    from make import Random, bpe
    draw = np.random.default_rng(seed)
    r, w = Random(seed), Writer()
    embd, heads, full, local = (int(draw.choice(c)) for c in ((32, 48, 64), (2, 4), (32, 48), (16, 24)))
    layers, ff, experts, ff_expert = (int(draw.integers(*c)) for c in ((3, 7), (20, 70), (4, 9), (9, 30)))
    mixture, fused = bool(seed % 2), bool(seed % 4 == 1)
    windowed = [bool(draw.integers(0, 3)) for _ in range(layers)]
    windowed[0], windowed[-1] = True, False
    kv_heads = [int(draw.choice((1, 2))) for _ in range(layers)]
    keys = dict(context_length=256, embedding_length=embd, block_count=layers, feed_forward_length=ff,
                attention__head_count=heads, attention__key_length=full, attention__value_length=full,
                attention__key_length_swa=local, attention__value_length_swa=local, rope__dimension_count=full,
                rope__dimension_count_swa=local, attention__sliding_window=int(draw.integers(3, 12)),
                embedding_length_per_layer_input=0, attention__shared_kv_layers=0)
    if mixture:
        keys |= dict(expert_count=experts, expert_used_count=2, expert_feed_forward_length=ff_expert)
    w.add("general.architecture", "gemma4")
    w.add("general.name", path.stem)
    for name, value in keys.items():
        w.add(f"gemma4.{name.replace('__', '.')}", U32(value))
    w.add("gemma4.attention.head_count_kv", kv_heads)
    w.add("gemma4.attention.sliding_window_pattern", windowed)
    w.add("gemma4.attention.layer_norm_rms_epsilon", 1e-6)
    w.add("gemma4.rope.freq_base", 1e6)
    w.add("gemma4.rope.freq_base_swa", 1e4)
    w.add("gemma4.final_logit_softcapping", float(draw.uniform(6, 20)))
    n_vocab = bpe(w)

    def put(name, *shape, gain=1.2):
        w.add_tensor(name, r.matrix(*shape, gain=gain), "F32")

    put("token_embd.weight", n_vocab, embd, gain=2)
    w.add_tensor("output_norm.weight", r.norm(embd), "F32")
    stopped = int(draw.integers(1, full // 2))
    w.add_tensor("rope_freqs.weight", np.where(np.arange(full // 2) < stopped, 1, 1e30).astype(np.float32), "F32")
    for i in range(layers):
        b, d, kv = f"blk.{i}", local if windowed[i] else full, kv_heads[i]
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            w.add_tensor(f"{b}.{name}.weight", r.norm(embd), "F32")
        put(f"{b}.attn_q.weight", heads * d, embd)
        put(f"{b}.attn_k.weight", kv * d, embd)
        if windowed[i] or draw.integers(0, 2):
            put(f"{b}.attn_v.weight", kv * d, embd)
        w.add_tensor(f"{b}.attn_q_norm.weight", r.norm(d), "F32")
        w.add_tensor(f"{b}.attn_k_norm.weight", r.norm(d), "F32")
        put(f"{b}.attn_output.weight", embd, heads * d)
        w.add_tensor(f"{b}.layer_output_scale.weight", r.norm(1), "F32")
        put(f"{b}.ffn_gate.weight", ff, embd)
        put(f"{b}.ffn_up.weight", ff, embd)
        put(f"{b}.ffn_down.weight", embd, ff)
        if not mixture:
            continue
        put(f"{b}.ffn_gate_inp.weight", experts, embd, gain=6)
        w.add_tensor(f"{b}.ffn_gate_inp.scale", r.norm(embd) * 4, "F32")
        for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
            w.add_tensor(f"{b}.{name}.weight", r.norm(embd), "F32")
        if fused:
            put(f"{b}.ffn_gate_up_exps.weight", experts, 2 * ff_expert, embd)
        else:
            put(f"{b}.ffn_gate_exps.weight", experts, ff_expert, embd)
            put(f"{b}.ffn_up_exps.weight", experts, ff_expert, embd)
        put(f"{b}.ffn_down_exps.weight", experts, embd, ff_expert)
        w.add_tensor(f"{b}.ffn_down_exps.scale", r.norm(experts), "F32")
    w.write(path)
    tokens = [int(t) for t in draw.integers(0, n_vocab - 2, PROMPT)]
    path.with_suffix(".json").write_text(json.dumps({"tokens": tokens, "n_vocab": n_vocab, "mixture": mixture}))


LONG = {"deepseek4": 170}  # tokens of a prompt: it has summaries of 128
FLASH = "minimax-m3"  # without flash attention llama.cpp shows it other cells
LATE = ("gemma4", "gemma4-moe", "deepseek32", "glm-dsa", "kimi-linear", "kimi-k3", "minimax-m3", "bailingmoe3", "step35",
        "mimo2", "ernie4_5-moe", "hunyuan-moe")
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's scalars


class Header:
    """As far as the data of a file's tensors."""

    def __init__(self, data):
        self.data, self.at, self.tokens, self.tensors, alignment = data, 24, [], [], 32
        n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
        for _ in range(n_keys):
            key = self.text()
            value = self.value(self.number("<I"))
            if key == "general.alignment":
                alignment = value
            if key == "tokenizer.ggml.tokens":
                self.tokens = value
        for _ in range(n_tensors):
            self.text()
            shape = [self.number("<Q") for _ in range(self.number("<I"))]
            self.tensors.append((self.number("<I"), self.number("<Q"), shape))
        self.begin = -(-self.at // alignment) * alignment

    def number(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.number("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind = self.number("<I")
            return [self.value(kind) for _ in range(self.number("<Q"))]
        if kind == 4:
            return self.number("<I")
        self.at += SIZES[kind]
        return None


def shuffled(path, source, seed):
    import numpy as np
    draw, data = np.random.default_rng(seed), bytearray((HERE / "models" / f"{source}.gguf").read_bytes())
    header = Header(bytes(data))
    for kind, offset, shape in header.tensors:
        if kind == 0:
            values = np.frombuffer(data, "<f4", int(np.prod(shape)), header.begin + offset)
            values[:] = draw.permutation(values)
    path.write_bytes(data)
    letter = header.tokens.index("a")
    tokens = [int(t) for t in draw.integers(letter - 20, letter + 1, LONG.get(source, PROMPT))]
    path.with_suffix(".json").write_text(json.dumps({"tokens": tokens, "n_vocab": len(header.tokens), "mixture": False,
                                                     "letter": letter}))


def post(path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def wait_for(server, log):
    for _ in range(300):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise RuntimeError(log.read_text()[-2000:])


def flash(path):
    return "on" if path.stem.startswith(FLASH) else "off"


def ask(path):
    about, log = json.loads(path.with_suffix(".json").read_text()), path.with_suffix(".log")
    server = subprocess.Popen(["llama-server", "-m", str(path), "--port", str(PORT), "-t", "1", "-c", "256", "-np", "1", "-fa",
                               flash(path), "-ctk", "f32", "-ctv", "f32", "--no-warmup"], stdout=subprocess.DEVNULL,
                              stderr=log.open("w"))
    try:
        wait_for(server, log)
        rows = []
        for n in range(1, len(about["tokens"]) + 1):
            said = post("/completion", {"prompt": about["tokens"][:n], "n_predict": 1, "n_probs": about["n_vocab"],
                                        "temperature": 0, "cache_prompt": False, "logit_bias": [[about.get("letter", LETTER), 1000]]})
            chances = {c["id"]: c["logprob"] for c in said["completion_probabilities"][0]["top_logprobs"]}
            rows.append([chances[i] for i in range(about["n_vocab"])])
    finally:
        server.terminate()
        server.wait()
    path.with_suffix(".json").write_text(json.dumps(about | {"rows": rows}))
    log.unlink()
    print(path.name, "asked")


def compare(path, medley):
    import numpy as np
    about, out = json.loads(path.with_suffix(".json").read_text()), path.with_suffix(".f32")
    subprocess.run([medley, "logits", str(path), "--tokens", ",".join(map(str, about["tokens"])), "--out", str(out), "--kv",
                    "f32", "--flash", flash(path), "--devices", "cpu", "-t", "1"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    logits = np.fromfile(out, "<f4").reshape(len(about["tokens"]), about["n_vocab"]).astype(np.float64)
    chances = logits - logits.max(1, keepdims=True)
    chances -= np.log(np.exp(chances).sum(1, keepdims=True))
    off = np.abs(chances - np.array(about["rows"])).max(1)
    print(path.name, "mixture" if about["mixture"] else "dense", f"largest difference {off.max():.1e}, median row {np.median(off):.1e}")
    return off.max()


def main(what, folder, *more):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    if what == "make":
        count, first = [int(m) for m in more] + [4, 1][len(more):]
        for seed in range(first, first + count):
            gemma4(folder / f"gemma4-{seed}.gguf", seed)
        return 0
    if what == "shuffle":
        count, first = [int(m) for m in more[:2]] + [4, 1][len(more[:2]):]
        for name in more[2:] or LATE:
            for seed in range(first, first + count):
                shuffled(folder / f"{name}-{seed}.gguf", name, seed)
        return 0
    paths = sorted(folder.glob("*.gguf"))
    if what == "ask":
        for path in paths:
            ask(path)
        return 0
    medley = more[0] if more else "build/release/src/cli/medley"
    return int(max([compare(path, medley) for path in paths]) > 0.01)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "shuffle", "ask", "compare"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
