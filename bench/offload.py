# SPDX-License-Identifier: Apache-2.0
"""`fullshard train` with states, or everything, in host memory or on a disk, beside the same without and beside PyTorch's FSDP2 with
CPUOffloadPolicy and DeepSpeed's offload where that is installed; writes bench/results/offload.md.

Called by bench/offload.sh. Values are medians of the steps after the warm-up. Lines that do not fit are told as such.
"""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile

import machine

WARM_UP = 3
# Seconds that the device waited, by its own marks: computation for updates and parameters; updates for copies, those for windows.
WAITS = ["update_wait_s", "fetch_wait_s", "copy_in_wait_s", "copy_out_wait_s"]
PEER = os.path.join(machine.ROOT, "bench", "peers", "train_step.py")
DEEPSPEED = os.path.join(machine.ROOT, "bench", "peers", "deepspeed_step.py")
# model, sequence length, micro-batch, accumulation, recomputation
SHAPES = {"llama-1.1b": ("llama-1.1b", 2048, 8, 1, False), "llama-8b, 8k tokens": ("llama-8b", 2048, 4, 1, True),
          "llama-8b, 16k tokens": ("llama-8b", 2048, 8, 1, True), "llama-8b, 64k tokens": ("llama-8b", 2048, 8, 4, True)}
PLACES = {"on the device": [], "optimizer in host memory": ["--offload", "optimizer"],
          "parameters and optimizer in host memory": ["--offload", "all"]}
REQUIRED = {("llama-1.1b", "optimizer in host memory"): "50k tokens/s, 17 GiB",
            ("llama-1.1b", "everything in host memory"): "38k tokens/s, 12 GiB",
            ("llama-8b, 8k tokens", "optimizer in host memory"): "0.45 of the speed on the device",
            ("llama-8b, 16k tokens", "optimizer in host memory"): "0.65",
            ("llama-8b, 64k tokens", "optimizer in host memory"): "0.9",
            ("llama-1.1b", "optimizer on disk"): "0.9 of raw, both ways"}


def random_tokens(folder):
    import numpy
    path = os.path.join(folder, "tokens.bin")
    numpy.random.default_rng(0).integers(0, 32000, 8_000_000).astype("<u2").tofile(path)
    return path


def everything_file(folder):
    path = os.path.join(folder, "fsdp.yaml")
    with open(path, "w") as file:
        file.write("distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
                   "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: true\n")
    return path


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr[-1500:]}", file=sys.stderr, flush=True)
        return None
    return done.stdout


def ours(arguments, shape, words, tokens, folder):
    model, length, batch, accumulation, recompute = SHAPES[shape]
    output = os.path.join(folder, "run")
    command = [os.path.join(arguments.binaries, "fullshard"), "train", "--ranks", "1", "--device", "cuda", "--model", model,
               "--data", tokens, "--sequence-length", str(length), "--micro-batch", str(batch), "--accumulate", str(accumulation),
               "--steps", str(arguments.steps + WARM_UP), "--lr", "1e-4", "--schedule", "constant", "--clip", "1",
               "--order", "sequential", "--output", output, "--overwrite", "--no-save-model", "--quiet", "--json", *words]
    if "--config" not in words:
        command += ["--strategy", "FULL_SHARD", "--precision", "bf16"]
    if recompute:
        command += ["--recompute"]
    if run(command) is None:
        return None
    with open(os.path.join(output, "metrics.jsonl")) as lines:
        records = [json.loads(line) for line in lines]
    with open(os.path.join(output, "run.json")) as file:
        memory = json.load(file).get("memory", {})
    return {"step_s": statistics.median(record["step_s"] for record in records[WARM_UP:]), "memory": memory,
            "waits": [statistics.median(record.get(key, 0) for record in records[WARM_UP:]) for key in WAITS],
            "gib": max(record["device_peak_bytes"] for record in records) / 2**30,
            "host_gib": max(record["host_peak_bytes"] for record in records) / 2**30, "loss": records[-1]["loss"]}


def peer(arguments, shape, words, tokens):
    model, length, batch, accumulation, _ = SHAPES[shape]
    command = [sys.executable, *words, "--model", model, "--tokens", tokens, "--seq", str(length), "--batch", str(batch),
               "--steps", str(arguments.steps + WARM_UP)]
    said = run(command) if accumulation == 1 else None
    if said is None:
        return None
    found = json.loads(said.strip().splitlines()[-1])
    return {"step_s": found["step_s"], "gib": found["peak_gib"], "host_gib": None, "loss": found["loss"]}


def lines_of(arguments, shape, tokens, folder):
    model = SHAPES[shape][0]
    for name, words in PLACES.items():
        if model != "llama-1.1b" and "parameters" in name and not arguments.all:
            continue
        yield "fullshard train, " + name, ours(arguments, shape, words, tokens, folder)
    if model == "llama-1.1b":
        config = everything_file(folder)
        yield "fullshard train, everything in host memory", ours(arguments, shape, ["--config", config], tokens, folder)
        if arguments.disk:
            yield "fullshard train, optimizer on disk", ours(arguments, shape, ["--offload", f"optimizer:{arguments.disk}"], tokens, folder)
        if arguments.peers:
            yield "PyTorch FSDP2, CPUOffloadPolicy", peer(arguments, shape, [PEER, "--mode", "fsdp2", "--offload"], tokens)
            if importlib.util.find_spec("deepspeed"):
                yield "DeepSpeed, ZeRO-2 offload", peer(arguments, shape, [DEEPSPEED, "--stage", "2", "--offload"], tokens)


def waits_of(found):
    """Computing, waiting for updates, for parameters; and beside it updates for copies in, copies in for windows; ms."""
    if "waits" not in found:
        return ["-"] * 3
    update, fetch, copy_in, copy_out = (1000 * seconds for seconds in found["waits"])
    return [f"{1000 * found['step_s'] - update - fetch:.0f}", f"{update:.0f} + {fetch:.0f}", f"{copy_in:.0f}, {copy_out:.0f}"]


def measure(arguments, shape, tokens, folder):
    _, length, batch, accumulation, _ = SHAPES[shape]
    tokens_per_step = length * batch * accumulation
    base, rows = None, []
    for name, found in lines_of(arguments, shape, tokens, folder):
        if found is None:
            rows.append([name, "did not run"] + ["-"] * 9)
            continue
        if base is None:
            base = found["step_s"]
        required = REQUIRED.get((shape, name.removeprefix("fullshard train, ")), "-")
        host = found["host_gib"]
        rows.append([name, f"{found['step_s'] * 1000:.0f}", f"{tokens_per_step / found['step_s']:,.0f}",
                     f"{base / found['step_s']:.2f}", f"{found['gib']:.1f}", f"{host:.1f}" if host else "-",
                     f"{found['loss']:.3f}", *waits_of(found), required])
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--disk", help="folder for the lines with a disk; they are left out without it")
    parser.add_argument("--all", action="store_true", help="every place for every shape")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    arguments = parser.parse_args()
    import torch
    words = " ".join(f"'{word}'" if " " in word else word for word in sys.argv[1:])
    text = machine.head("Offload on one GPU", f"bench/offload.sh {words}".strip()).rstrip() + "\n"
    text += f"- GPU: {torch.cuda.get_device_name()}\n\n"
    text += f"bf16, fp32 masters and moments, AdamW, clipping at 1, random tokens; medians of the steps after {WARM_UP}.\n\n"
    bus = run([os.path.join(arguments.binaries, "fullshard"), "bench", "bus"])
    text += f"`fullshard bench bus`:\n\n```\n{(bus or '').strip()}\n```\n\n"
    if arguments.disk:
        disk = run([os.path.join(arguments.binaries, "fullshard"), "bench", "disk", arguments.disk, "--quick"])
        text += f"`fullshard bench disk --quick`:\n\n```\n{(disk or '').strip()}\n```\n\n"
    with tempfile.TemporaryDirectory() as folder:
        tokens = random_tokens(folder)
        for shape in arguments.shapes:
            text += f"## {shape}\n\n"
            text += machine.table(["line", "ms/step", "tokens/s", "of the device", "device GiB", "host GiB", "last loss", "computing ms",
                                   "waiting for updates + parameters", "updates for copies in, those for copies out", "required"],
                                  measure(arguments, shape, tokens, folder)) + "\n"
            machine.write("offload.md", text)


if __name__ == "__main__":
    main()
