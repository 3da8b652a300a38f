# SPDX-License-Identifier: Apache-2.0
"""`fullshard train` on one GPU beside PyTorch's plain and FSDP2, eager and compiled, and DeepSpeed where it is installed;
writes bench/results/h200.md.

Called by bench/h200.sh. Rounds go through all lines in turn; values are medians of the steps after the warm-up, then over
the rounds. Peers' lines are bench/peers/train_step.py and deepspeed_step.py at the same shapes.
"""
import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import machine

SHAPES = {"gpt2-124m": (1024, 32), "llama-1.1b": (2048, 8), "llama-3b": (2048, 4)}  # sequence length, batch
REQUIRED = {"gpt2-124m": (430e3, 22), "llama-1.1b": (75e3, 32), "llama-3b": (25e3, 58)}  # tokens/s, GiB of FULL_SHARD
VOCABULARY = 32000  # the smallest of the models
WARM_UP = 4
PEER = os.path.join(machine.ROOT, "bench", "peers", "train_step.py")
DEEPSPEED = os.path.join(machine.ROOT, "bench", "peers", "deepspeed_step.py")
PEERS = {"PyTorch plain": [PEER, "--mode", "plain"], "PyTorch plain, compiled": [PEER, "--mode", "plain", "--compile"],
         "PyTorch FSDP2": [PEER, "--mode", "fsdp2"], "PyTorch FSDP2, compiled": [PEER, "--mode", "fsdp2", "--compile"],
         "DeepSpeed, ZeRO-2": [DEEPSPEED, "--stage", "2"], "DeepSpeed, ZeRO-3": [DEEPSPEED, "--stage", "3"]}
OURS = {"fullshard train, FULL_SHARD": "FULL_SHARD", "fullshard train, NO_SHARD": "NO_SHARD"}


def known_peers():
    has_deepspeed = importlib.util.find_spec("deepspeed") is not None
    return [name for name, words in PEERS.items() if has_deepspeed or words[0] != DEEPSPEED]


def gpu_name():
    import torch
    return torch.cuda.get_device_name()


def random_tokens(folder):
    import numpy
    path = os.path.join(folder, "tokens.bin")
    numpy.random.default_rng(0).integers(0, VOCABULARY, 4_000_000).astype("<u2").tofile(path)
    return path


def ours(binaries, model, strategy, tokens, weights, steps, folder):
    length, batch = SHAPES[model]
    output = os.path.join(folder, "run")
    command = [os.path.join(binaries, "fullshard"), "train", "--ranks", "1", "--device", "cuda", "--model", weights, "--data",
               tokens, "--sequence-length", str(length), "--micro-batch", str(batch), "--steps", str(steps + WARM_UP),
               "--lr", "1e-4", "--schedule", "constant", "--weight-decay", "0.01", "--clip", "1", "--strategy", strategy, "--precision", "bf16", "--order", "sequential",
               "--output", output, "--overwrite", "--no-save-model", "--quiet", "--json"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    with open(os.path.join(output, "metrics.jsonl")) as lines:
        records = [json.loads(line) for line in lines]
    return {"step_s": statistics.median(record["step_s"] for record in records[WARM_UP:]),
            "gib": max(record["device_peak_bytes"] for record in records) / 2**30,
            "first": records[0]["loss"], "last": records[-1]["loss"]}


def export(model, folder):
    """The folder with the weights that all lines start from."""
    weights = os.path.join(folder, "weights")
    shutil.rmtree(weights, ignore_errors=True)
    length, _ = SHAPES[model]
    subprocess.run([sys.executable, PEER, "--model", model, "--mode", "plain", "--seq", str(length), "--export", weights],
                   check=True)
    return weights


def peer(model, words, tokens, steps):
    length, batch = SHAPES[model]
    command = [sys.executable, *words, "--model", model, "--tokens", tokens, "--seq", str(length), "--batch", str(batch), "--steps", str(steps + WARM_UP)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr[-1000:]}", file=sys.stderr, flush=True)
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {"step_s": found["step_s"], "gib": found["peak_gib"], "first": found["first_loss"], "last": found["loss"]}


def measure(arguments, model, tokens, folder):
    weights = export(model, folder)
    runs = {name: [] for name in [*OURS, *PEERS]}
    for _ in range(arguments.rounds):
        for name, strategy in OURS.items():
            runs[name].append(ours(arguments.binaries, model, strategy, tokens, weights, arguments.steps, folder))
        for name in arguments.peers:
            runs[name].append(peer(model, PEERS[name], tokens, arguments.steps))
    return {name: [run for run in found if run] for name, found in runs.items() if any(found)}


def rows_of(model, runs):
    length, batch = SHAPES[model]
    step = {name: statistics.median(run["step_s"] for run in found) for name, found in runs.items()}
    base = step.get("PyTorch FSDP2, compiled")
    return [[name, f"{step[name] * 1000:.1f}", f"{length * batch / step[name]:,.0f}",
             f"{base / step[name]:.2f}" if base else "-", f"{max(run['gib'] for run in found):.1f}",
             f"{found[0]['first']:.3f}", f"{found[0]['last']:.3f}"] for name, found in runs.items()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--peers", nargs="*", default=known_peers(), choices=list(PEERS))
    arguments = parser.parse_args()
    words = " ".join(f"'{word}'" if " " in word else word for word in sys.argv[1:])
    text = machine.head("One GPU", f"bench/h200.sh {words}".strip()).rstrip() + "\n"
    text += f"- GPU: {gpu_name()}\n\n"
    text += ("bf16, fp32 master weights, AdamW, clipping at 1, random tokens; medians of the steps after "
             f"{WARM_UP}; memory is the peak of what the allocator handed out. "
             "All lines start from the same weights and read the same tokens.\n\n")
    with tempfile.TemporaryDirectory() as folder:
        tokens = random_tokens(folder)
        for model in arguments.models:
            length, batch = SHAPES[model]
            speed, memory = REQUIRED[model]
            text += (f"## {model}, sequence {length}, batch {batch}\n\nRequired of FULL_SHARD: {speed:,.0f} tokens/s, "
                     f"{memory} GiB.\n\n")
            text += machine.table(["line", "ms/step", "tokens/s", "of compiled FSDP2", "peak GiB", "first loss",
                                   "last loss"], rows_of(model, measure(arguments, model, tokens, folder)))
            print(text[text.rindex("## "):], flush=True)
    machine.write("h200.md", text)


if __name__ == "__main__":
    main()
