# SPDX-License-Identifier: Apache-2.0
"""`fullshard train` on two ranks beside PyTorch's plain, DDP and FSDP2; writes bench/results/train.md.

Called by bench/train.sh. The rounds go through all lines in turn; values are medians over the rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import cpu_steps  # noqa: E402

SHAPES = {"llama-15m": (256, 4), "llama-110m": (128, 1)}  # sequence length, batch per rank
VOCABULARY = 32000
WARM_UP = 3
RANKS = 2
PEERS = [("PyTorch plain, 2 processes at once", "plain"), ("PyTorch DDP", "ddp"), ("PyTorch FSDP2", "fsdp2")]


def random_tokens(folder):
    import numpy
    path = os.path.join(folder, "tokens.bin")
    numpy.random.default_rng(0).integers(0, VOCABULARY, 400_000).astype("<u2").tofile(path)
    return path


def pss_of(pids):
    """Proportional set size of each process, in bytes; 0 for one that is gone."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as lines:
                found.append(sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")))
        except OSError:
            found.append(0)
    return found


def ranks_of(folder):
    """Processes of fullshard-core that write into this folder."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                words = line.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"fullshard-core") and folder.encode() in words:
            pids.append(pid)
    return pids


def ours(binaries, model, tokens, steps, folder, samples_memory=False):
    length, batch = SHAPES[model]
    output = os.path.join(folder, "run")
    command = [os.path.join(binaries, "fullshard"), "train", "--ranks", str(RANKS), "--model", model, "--data", tokens,
               "--sequence-length", str(length), "--micro-batch", str(batch), "--steps", str(steps + WARM_UP), "--lr",
               "1e-4", "--clip", "1", "--strategy", "FULL_SHARD", "--order", "sequential", "--output", output,
               "--overwrite", "--no-save-model", "--quiet", "--json"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env=dict(os.environ, OMP_NUM_THREADS="1"))
    peak = [0] * RANKS
    while samples_memory and run.poll() is None:
        found = pss_of(ranks_of(output))
        if len(found) == RANKS:
            peak = [max(pair) for pair in zip(peak, found)]
        time.sleep(0.02)
    if run.wait() != 0:
        raise SystemExit(f"{' '.join(command)}: failed")
    with open(os.path.join(output, "metrics.jsonl")) as lines:
        records = [json.loads(line) for line in lines]
    return {"step_s": statistics.median(record["step_s"] for record in records[WARM_UP:]), "pss_peak": peak,
            "first_loss": records[0]["loss"], "exposed": statistics.median(r["exposed_comm_s"] for r in records[WARM_UP:])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    text = machine.head("Training", f"bench/train.sh --rounds {arguments.rounds} --steps {arguments.steps}")
    text += ("Two ranks, fp32, AdamW, clipping at 1, one thread per rank, random tokens; seconds are medians of the steps "
             f"after {WARM_UP}. PSS is sampled in a run of its own for ours, during one step for PyTorch's; the mean of "
             "the ranks.\n\n")
    with tempfile.TemporaryDirectory() as folder:
        tokens = random_tokens(folder)
        for model, (length, batch) in SHAPES.items():
            runs = {name: [] for name in ["fullshard train, FULL_SHARD"] + [name for name, _ in PEERS]}
            own = next(iter(runs))
            for _ in range(arguments.rounds):
                runs[own].append(ours(arguments.binaries, model, tokens, arguments.steps, folder))
                for name, mode in PEERS:
                    runs[name].append(cpu_steps.measure(model, mode, RANKS, ["--device", "cpu", "--steps",
                                                                            str(arguments.steps + WARM_UP)]))
            memory = ours(arguments.binaries, model, tokens, 2, folder, samples_memory=True)["pss_peak"]
            step = {name: statistics.median(run["step_s"] for run in found) for name, found in runs.items()}
            pss = {name: statistics.median(statistics.mean(run["pss_peak"]) for run in found)
                   for name, found in runs.items()}
            pss[own] = statistics.mean(memory)
            fsdp2 = PEERS[-1][0]
            rows = [[name, f"{step[name]:.4f}", f"{RANKS * length * batch / step[name]:.0f}",
                     f"{step[fsdp2] / step[name]:.2f}", f"{pss[name] / 2**20:.0f}", f"{pss[name] / pss[fsdp2]:.2f}",
                     f"{runs[name][0]['first_loss']:.4f}"] for name in runs]
            text += f"## {model}, sequence {length}, batch {batch} per rank\n\n" + machine.table(
                ["line", "s/step", "tokens/s", "of FSDP2's tokens/s", "PSS peak MiB per rank", "of FSDP2's", "first loss"],
                rows)
            exposed = statistics.median(run["exposed"] for run in runs[own])
            text += f"Communication that a step of ours waits for: {exposed * 1000:.0f} ms.\n\n"
    machine.write("train.md", text)


if __name__ == "__main__":
    main()
