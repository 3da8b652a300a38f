# SPDX-License-Identifier: Apache-2.0
"""LoRA of an 8B Llama on one GPU: adapters of rank 16 on all layers of the blocks, over a base of 16 and of 8 bits, with and
without recomputation, beside PEFT and transformers where PEFT can be imported; writes bench/results/lora.md.

Called by bench/lora.sh. Rounds go through all lines in turn.
"""
import argparse
import importlib.metadata
import importlib.util
import os
import statistics
import sys
import tempfile

import gpu_lines
import machine

WARM_UP = 4
LENGTH, BATCH = 2048, 4
PEER = os.path.join(machine.ROOT, "bench", "peers", "lora_step.py")
OURS = {"bf16 base": [], "bf16 base, recomputed": ["--recompute"], "8-bit base": ["--base-precision", "int8"],
        "8-bit base, recomputed": ["--base-precision", "int8", "--recompute"]}
PEERS = {"compiled": ["--compile"], "compiled, recomputed": ["--compile", "--recompute"]}
REQUIRED = {"bf16 base": "16,000 tokens/s, 45 GiB", "bf16 base, recomputed": "12,000 tokens/s, 22 GiB",
            "8-bit base": "0.8 of the speed of bf16's"}


def ours(arguments, words, folder):
    records = gpu_lines.train(arguments.binaries, ["--model", arguments.model, "--lora-rank", "16", "--lora-alpha", "32", "--lora-targets", "all-linear", "--data",
                                                   "tokens.bin", "--order", "sequential", "--sequence-length", str(LENGTH), "--micro-batch", str(BATCH),
                                                   "--steps", str(arguments.steps + WARM_UP), "--lr", "1e-4", "--schedule", "constant", "--precision",
                                                   "bf16", *words], folder)
    return gpu_lines.step_of(records, WARM_UP)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--model", default="llama-8b")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=list(OURS), choices=list(OURS), help="lines of ours")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    arguments = parser.parse_args()
    import numpy
    import torch
    lines, peers = {}, f"torch {torch.__version__}"
    for name in arguments.only:
        lines[f"fullshard train, {name}"] = (REQUIRED.get(name, ""), lambda folder, name=name: ours(arguments, OURS[name], folder))
    if importlib.util.find_spec("peft"):
        peers += "".join(f", {package} {importlib.metadata.version(package)}" for package in ("transformers", "peft"))
        for name in arguments.peers:
            lines[f"PEFT, {name}"] = ("", lambda folder, name=name: gpu_lines.peer_step([PEER, *PEERS[name]]))
    words = " ".join(f"'{word}'" if " " in word else word for word in sys.argv[1:])
    text = machine.head("LoRA on one GPU", f"bench/lora.sh {words}".strip(), peers).rstrip() + "\n"
    text += f"- GPU: {torch.cuda.get_device_name()}\n\n"
    text += (f"{arguments.model}, {BATCH} x {LENGTH} tokens, adapters of rank 16 on all layers of the blocks, AdamW, clipping at 1, random tokens, one rank; "
             f"medians of the steps after {WARM_UP}, then over the rounds; memory is the peak of what the allocator handed out.\n\n")
    with tempfile.TemporaryDirectory() as folder:
        numpy.random.default_rng(0).integers(0, 32000, 1_000_000).astype("<u2").tofile(os.path.join(folder, "tokens.bin"))
        found = {name: [] for name in lines}
        for _ in range(arguments.rounds):
            for name, (_, measure) in lines.items():
                found[name].append(measure(folder))
                print(name, found[name][-1], flush=True)
    rows = []
    for name, runs in found.items():
        runs = [run for run in runs if run]
        if runs:
            seconds = statistics.median(run[0] for run in runs)
            rows.append([name, f"{seconds * 1000:.1f}", f"{LENGTH * BATCH / seconds:,.0f}", f"{max(run[1] for run in runs):.1f}", lines[name][0]])
    text += machine.table(["line", "ms/step", "tokens/s", "peak GiB", "required"], rows)
    print(text, flush=True)
    machine.write("lora.md", text)


if __name__ == "__main__":
    main()
