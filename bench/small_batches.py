# SPDX-License-Identifier: Apache-2.0
"""Steps that are too small to hide the host, on one GPU: `fullshard train` with and without CUDA graphs beside PyTorch
compiled, with and without them; writes bench/results/small_batches.md.

Called by bench/small_batches.sh. Rounds go through all lines in turn. What one more micro-batch adds where many are
accumulated is the device's own time of it: the host's work for it lies under the one before.
"""
import argparse
import os
import statistics
import sys
import tempfile

import gpu_lines
import machine

WARM_UP = 12  # the shape is timed, then captured
PEER = os.path.join(machine.ROOT, "bench", "peers", "train_step.py")
SHAPES = {"gpt2-124m": (1024, 4), "llama-110m": (1024, 2), "llama-1.1b": (512, 4)}
REQUIRED = {"gpt2-124m": "at most 11 ms", "llama-110m": "at most 1.25 of the device's own time", "llama-1.1b": "nothing"}
MANY = 9  # micro-batches


def ours(arguments, model, words, folder):
    length, batch = SHAPES[model]
    records = gpu_lines.train(arguments.binaries, ["--model", model, "--data", "tokens.bin", "--sequence-length", str(length), "--micro-batch",
                                                   str(batch), "--steps", str(arguments.steps + WARM_UP), "--lr", "1e-4", "--schedule",
                                                   "constant", "--precision", "bf16", "--order", "sequential", *words], folder)
    return gpu_lines.step_of(records, WARM_UP)


def peer(arguments, model, words):
    length, batch = SHAPES[model]
    return gpu_lines.peer_step([PEER, "--mode", "plain", "--model", model, "--seq", str(length), "--batch", str(batch), "--steps",
                                str(arguments.steps + WARM_UP), *words])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--graphs-only", action="store_true", help="leave the peer without CUDA graphs out")
    arguments = parser.parse_args()
    import numpy
    import torch
    text = machine.head("Small batches on one GPU", f"bench/small_batches.sh {' '.join(sys.argv[1:])}".strip()).rstrip() + "\n"
    text += f"- GPU: {torch.cuda.get_device_name()}\n\n"
    text += ("bf16, fp32 master weights, AdamW, clipping at 1, random tokens; medians of steps, then over the rounds.\n\n")
    with tempfile.TemporaryDirectory() as folder:
        numpy.random.default_rng(0).integers(0, 32000, 3_000_000).astype("<u2").tofile(os.path.join(folder, "tokens.bin"))
        for model in arguments.models:
            lines = {"fullshard train": lambda: ours(arguments, model, [], folder),
                     "fullshard train --no-graphs": lambda: ours(arguments, model, ["--no-graphs"], folder)}
            if not arguments.no_peers:
                if not arguments.graphs_only:
                    lines["PyTorch plain, compiled"] = lambda: peer(arguments, model, ["--compile"])
                lines["PyTorch plain, compiled, CUDA graphs"] = lambda: peer(arguments, model, ["--graphs"])
            found = {name: [] for name in lines}
            for _ in range(arguments.rounds):
                for name, measure in lines.items():
                    found[name].append(measure())
            many = ours(arguments, model, ["--accumulate", str(MANY)], folder)
            step = {name: statistics.median(one[0] for one in runs if one) for name, runs in found.items() if any(runs)}
            one = step["fullshard train"]
            each = (many[0] - one) / (MANY - 1)  # of a micro-batch whose host work lies under the one before
            text += f"## {model}, sequence {SHAPES[model][0]}, batch {SHAPES[model][1]}\n\nRequired: {REQUIRED[model]}.\n\n"
            rows = [[name, f"{seconds * 1000:.2f}", f"{SHAPES[model][0] * SHAPES[model][1] / seconds:,.0f}",
                     f"{max(run[1] for run in found[name] if run):.2f}"] for name, seconds in step.items()]
            text += machine.table(["line", "ms/step", "tokens/s", "peak GiB"], rows)
            text += (f"A micro-batch after the first adds {each * 1000:.2f} ms, which is the device's alone; {one * 1000 - each * 1000:.2f} ms of a step "
                     "are the update, the norm and what the host adds.\n\n")
            print(text[text.rindex("## "):], flush=True)
    machine.write("small_batches.md", text)


if __name__ == "__main__":
    main()
