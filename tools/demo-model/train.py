#!/usr/bin/env python3
"""Trains the demo model, a small transformer of the llama architecture, on CPU.

The hidden matrices are trained with Muon (Jordan et al. 2024), which on a budget of minutes gets
further than AdamW with the same tokens; the embedding and the norms with AdamW. The learning rate is
constant after a short warm-up and falls linearly to zero at the end. State is saved every so many
steps, and a run that was stopped goes on from there to the same result.

The work is shared by processes of one thread each: the threads of PyTorch and those of OpenBLAS wait
for each other by spinning, and on a machine with few cores lose nine tenths of the time with it.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

# Before numpy loads OpenBLAS, which reads them once.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn as nn
import torch.nn.functional as F

import data
from tokenizer import Tokenizer

CONFIG = dict(vocab=data.VOCABULARY, context=data.CONTEXT, width=192, layers=5, heads=4, kv_heads=2,
              ff=512, rope_base=10000.0, epsilon=1e-5)


# ---- the model ---------------------------------------------------------------------------------


def rope_table(config):
    """The turn of every pair at every position as a complex number, [context, head/2]."""
    half = config["width"] // config["heads"] // 2
    frequencies = config["rope_base"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(config["context"], dtype=torch.float64), frequencies)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x, turns):
    """Turns the pairs (2i, 2i+1) of the last axis; llama's GGUF files expect them side by side."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # [batch, tokens, heads, head/2]
    return torch.view_as_real(pairs * turns[:, None]).flatten(-2)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, ff = config["width"], config["ff"]
        self.heads, self.kv_heads = config["heads"], config["kv_heads"]
        self.head = width // self.heads
        self.attn_norm = nn.RMSNorm(width, config["epsilon"])
        self.attn_q = nn.Linear(width, width, bias=False)
        self.attn_k = nn.Linear(width, self.kv_heads * self.head, bias=False)
        self.attn_v = nn.Linear(width, self.kv_heads * self.head, bias=False)
        self.attn_output = nn.Linear(width, width, bias=False)
        self.ffn_norm = nn.RMSNorm(width, config["epsilon"])
        self.ffn_gate = nn.Linear(width, ff, bias=False)
        self.ffn_up = nn.Linear(width, ff, bias=False)
        self.ffn_down = nn.Linear(ff, width, bias=False)

    @torch.no_grad()
    def start_as_copy(self, strength):
        """Values and output begin as inverses of each other: a head passes on, `strength` times, what it
        attends to, and to carry a name through a story it only has to learn where to look (mimetic
        initialization, Trockman and Kolter 2023)."""
        width = self.attn_output.weight.shape[0]
        nn.init.orthogonal_(self.attn_v.weight)
        back = self.attn_v.weight.T.view(width, self.kv_heads, 1, self.head)
        back = back.expand(-1, -1, self.heads // self.kv_heads, -1)  # heads of a group share their values
        self.attn_output.weight.copy_(strength * back.reshape(width, -1))

    def forward(self, x, turns):
        normed = self.attn_norm(x)
        q = rotate(self.attn_q(normed).unflatten(-1, (self.heads, self.head)), turns).transpose(1, 2)
        k = rotate(self.attn_k(normed).unflatten(-1, (self.kv_heads, self.head)), turns).transpose(1, 2)
        v = self.attn_v(normed).unflatten(-1, (self.kv_heads, self.head)).transpose(1, 2)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [batch, heads, tokens, head]
        x = x + self.attn_output(y.transpose(1, 2).flatten(2))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Model(nn.Module):
    """Token ids [batch, tokens] -> logits [batch, tokens, vocab]. The embedding is also the output."""

    def __init__(self, config):
        super().__init__()
        self.token_embd = nn.Embedding(config["vocab"], config["width"])
        self.blk = nn.ModuleList(Block(config) for _ in range(config["layers"]))
        self.output_norm = nn.RMSNorm(config["width"], config["epsilon"])
        self.register_buffer("turns", rope_table(config), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # What adds to the residual stream starts smaller, so that depth does not make it grow.
                shrink = math.sqrt(2 * config["layers"]) if "down" in name else 1
                nn.init.normal_(weight, std=1 if "embd" in name else 1 / math.sqrt(weight.shape[1]) / shrink)
        # The embedding is as large as what the blocks add to it, or they drown which token it was: with 0.1
        # instead of 1 no name was ever copied. As the output it is then too large by this much.
        nn.init.constant_(self.output_norm.weight, 1 / math.sqrt(config["width"]))
        for block in self.blk:
            block.start_as_copy(0.3)

    def forward(self, ids):
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, self.turns[:ids.shape[1]])
        return F.linear(self.output_norm(x), self.token_embd.weight)


# ---- the optimizer -----------------------------------------------------------------------------


def orthogonalized(g, steps=5):
    """Newton-Schulz iteration towards the nearest orthogonal matrices; g is [n, rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315  # the coefficients of Jordan et al.: fast, and loose around 1
    wide = g.shape[1] <= g.shape[2]
    x = g if wide else g.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x if wide else x.transpose(1, 2)


class Muon(torch.optim.Optimizer):
    """Momentum, then the nearest orthogonal matrix as the step. Equal shapes are done together, and
    every process does its share of them. Weights decay, or attention grows so sharp that it stops learning."""

    def __init__(self, weights, lr, momentum=0.95, decay=0.4):
        shapes = sorted({weight.shape for weight in weights})
        super().__init__([dict(params=[w for w in weights if w.shape == shape]) for shape in shapes],
                         dict(lr=lr, momentum=momentum, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            updates = []
            for weight in group["params"]:
                buffer = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                buffer.lerp_(weight.grad, 1 - group["momentum"])
                updates.append(weight.grad.lerp(buffer, group["momentum"]))
            updates = torch.stack(updates)
            rank, size = dist.get_rank(), dist.get_world_size()
            mine = torch.zeros_like(updates)
            mine[rank::size] = orthogonalized(updates[rank::size])
            dist.all_reduce(mine)
            rows, columns = updates.shape[1:]
            scale = group["lr"] * math.sqrt(max(1, rows / columns))
            for weight, update in zip(group["params"], mine):
                weight.mul_(1 - group["lr"] * group["decay"]).add_(update, alpha=-scale)


def make_optimizers(model, lr):
    hidden = [w for n, w in model.named_parameters() if w.dim() == 2 and "embd" not in n]
    others = [w for n, w in model.named_parameters() if w.dim() == 1 or "embd" in n]
    return [Muon(hidden, lr), torch.optim.AdamW(others, lr=lr / 5, betas=(0.9, 0.95), weight_decay=0.0)]


def rate(step, steps, warmup=30, decay=0.45):
    """The factor of the learning rate: up, level, and down to zero over the last part."""
    return min(1.0, (step + 1) / warmup, (steps - step) / (decay * steps))


# ---- the texts ---------------------------------------------------------------------------------


class Texts:
    """The training texts in batches. A batch has texts of about the same length, so that little of it
    is padding; which texts are in the batch of a step depends on the seed and the step alone."""

    POOL = 32  # batches that are sorted by length together

    def __init__(self, path, rows, seed):
        stored = np.load(path)
        self.tokens, self.starts = stored["tokens"].astype(np.int64), stored["starts"]
        self.rows, self.seed = rows, seed

    def choice(self, step):
        """The numbers of the texts of a batch."""
        count, size = len(self.starts) - 1, self.rows * self.POOL
        pool, place = divmod(step, self.POOL)
        lap, offset = divmod(pool, count // size)
        order = np.random.default_rng([self.seed, lap]).permutation(count)[offset * size:(offset + 1) * size]
        lengths = self.starts[order + 1] - self.starts[order]
        batches = order[np.argsort(lengths, kind="stable")].reshape(self.POOL, self.rows)
        return batches[np.random.default_rng([self.seed, pool, 1]).permutation(self.POOL)[place]]

    def batch(self, step, rank, size):
        """This process's rows of the batch: inputs and targets, [rows, tokens]; padding aims at nothing."""
        texts = [self.tokens[self.starts[n]:self.starts[n + 1]] for n in self.choice(step)]
        longest = max(map(len, texts)) - 1
        inputs = torch.zeros(len(texts), longest, dtype=torch.int64)
        targets = torch.full_like(inputs, -100)
        for row, text in enumerate(texts):
            inputs[row, :len(text) - 1] = torch.from_numpy(text[:-1])
            targets[row, :len(text) - 1] = torch.from_numpy(text[1:])
        return inputs[rank::size], targets[rank::size], int((targets >= 0).sum())


# ---- training ----------------------------------------------------------------------------------


def save(path, model, optimizers, step):
    state = dict(model=model.state_dict(), optimizers=[o.state_dict() for o in optimizers], step=step)
    torch.save(state, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)  # a run that is stopped while saving loses nothing


def resume(path, model, optimizers):
    if not path.exists():
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"]):
        optimizer.load_state_dict(saved)
    return state["step"]


def train_step(model, optimizers, inputs, targets, count):
    """One step on this process's rows of a batch of `count` tokens. Returns the loss of the batch."""
    logits = model(inputs).flatten(0, 1)
    loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / count
    loss.backward()
    weights = list(model.parameters())
    flat = torch.cat([weight.grad.flatten() for weight in weights] + [loss.detach().view(1)])
    dist.all_reduce(flat)
    for weight, grad in zip(weights, flat[:-1].split([w.numel() for w in weights])):
        weight.grad = grad.view_as(weight)
    nn.utils.clip_grad_norm_(weights, 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return flat[-1].item()


@torch.no_grad()
def perplexity(model, tokenizer, texts):
    """exp of the mean loss of all tokens of the texts, each read on its own."""
    loss, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([[tokenizer.bos, *tokenizer.encode(text)]])
        loss += F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="sum").item()
        count += ids.shape[1] - 1
    return math.exp(loss / count)


def train(rank, options):
    """What each process does; process 0 speaks and saves."""
    dist.init_process_group("gloo", init_method=f"file://{options.work.resolve()}/meeting", rank=rank,
                            world_size=options.processes)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tokenizer = Tokenizer.load(options.work / "tokenizer.json")
    texts = Texts(options.work / "train.npz", options.rows, options.seed)
    heldout = (options.work / "heldout.txt").read_text().split(data.SEPARATOR)[:24]
    model = Model(CONFIG)
    optimizers = make_optimizers(model, options.lr)
    base_rates = [[group["lr"] for group in o.param_groups] for o in optimizers]
    checkpoint = options.work / "checkpoint.pt"
    first = resume(checkpoint, model, optimizers)
    say = print if rank == 0 else lambda *args, **kwargs: None
    say(f"{sum(w.numel() for w in model.parameters())} parameters, from step {first} of {options.steps}", flush=True)

    began, seen = time.monotonic(), 0
    for step in range(first, options.steps):
        for optimizer, rates in zip(optimizers, base_rates):
            for group, base in zip(optimizer.param_groups, rates):
                group["lr"] = base * rate(step, options.steps)
        inputs, targets, count = texts.batch(step, rank, options.processes)
        loss = train_step(model, optimizers, inputs, targets, count)
        seen += count
        seconds = time.monotonic() - began
        if step % 10 == 0:
            say(f"step {step} loss {loss:.4f} tokens/s {seen / seconds:.0f} seconds {seconds:.0f}", flush=True)
        done = step + 1
        if rank == 0 and (done % options.save_every == 0 or done == options.steps):
            save(checkpoint, model, optimizers, done)
            say(f"step {step} held-out perplexity {perplexity(model, tokenizer, heldout):.4f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder that data.py wrote")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--rows", type=int, default=12, help="texts in a batch")
    parser.add_argument("--lr", type=float, default=0.015)
    parser.add_argument("--processes", type=int, default=2, help="each with one thread; changes the result by rounding")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    options = parser.parse_args()
    (options.work / "config.json").write_text(json.dumps(CONFIG))
    (options.work / "meeting").unlink(missing_ok=True)  # left by a run that was stopped
    torch.multiprocessing.spawn(train, (options,), options.processes)


if __name__ == "__main__":
    main()
