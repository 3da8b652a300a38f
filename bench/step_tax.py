# SPDX-License-Identifier: Apache-2.0
"""What sharding costs in time and saves in memory, beside PyTorch; writes bench/results/step_tax.md.

Called by bench/step_tax.sh. The repetitions go round all the lines, so that a slow minute of the
machine hits every line alike; values are medians over the repetitions. What the engine costs is
measured apart, by pairs of steps in one run: plain, engine, engine, plain and so on.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys

import machine

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import cpu_steps  # noqa: E402

SHAPES = {"llama-15m": (256, 4), "llama-110m": (128, 1)}  # sequence length, batch per rank
WARM_UP = 2
# name, ranks, what runs: arguments of bench_step_tax, or a mode of the PyTorch peer
LINES = [
    ("plain, 1 process", 1, ["--mode", "plain"]),
    ("engine on 1 rank", 1, ["--mode", "sharded"]),
    ("plain, 2 processes at once (floor)", 2, ["--mode", "plain"]),
    ("FULL_SHARD, 2 ranks", 2, ["--mode", "sharded"]),
    ("PyTorch plain, 2 processes at once", 2, "plain"),
    ("PyTorch DDP, 2 ranks", 2, "ddp"),
    ("PyTorch FSDP2, 2 ranks", 2, "fsdp2"),
]


# Freed pages go back at once: what is counted is in use. Too slow for the timed runs.
RETURN_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072",
                "MIMALLOC_PURGE_DELAY": "0"}


def ours(binaries, model, ranks, arguments, steps, environment={}):
    length, batch = SHAPES[model]
    program = [os.path.join(binaries, "bench_step_tax"), "--model", model, "--sequence-length",
               str(length), "--batch", str(batch), "--steps", str(steps), "--warm-up",
               str(WARM_UP), *arguments]
    launch = [os.path.join(binaries, "fullshard"), "launch", "--ranks", str(ranks), "--"]
    found = subprocess.run((launch if ranks > 1 else []) + program, check=True,
                           stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    line = next(line for line in found.stdout.splitlines() if "{" in line)
    result = json.loads(line[line.index("{"):])
    if "step_s" in result:
        result["step_s"] = statistics.mean(result["step_s"])
    return result


def median_with_interval(values):
    """The median, and two of the values between which it lies with a probability of 95 % or more."""
    ordered, below, outside = sorted(values), 0, 0.0
    while outside + math.comb(len(ordered), below) / 2**len(ordered) <= 0.025:
        outside += math.comb(len(ordered), below) / 2**len(ordered)
        below += 1
    below = max(below, 1)
    return statistics.median(ordered), ordered[below - 1], ordered[-below]


def paired(binaries, model, ranks, pairs):
    """A sentence: the engine's step over the plain one's beside it, on as many ranks."""
    run = ours(binaries, model, ranks, ["--mode", "paired"], pairs)
    ratios = [a / b for a, b in zip(run["sharded_s"], run["plain_s"])]
    middle, low, high = median_with_interval(ratios)
    cpu = statistics.median(a / b for a, b in zip(run["sharded_cpu_s"], run["plain_cpu_s"]))
    return (f"{middle:.3f}, between {low:.3f} and {high:.3f} (95 %; {len(ratios)} pairs of steps, "
            f"{statistics.median(run['sharded_s']):.4f} s and {statistics.median(run['plain_s']):.4f} s; {cpu:.3f} in processor time; "
            f"{run['sharded_faults']} and {run['plain_faults']} page faults a step)")


def memory_rule(binaries, model):
    """The peak of a rank against what it must hold: program, states / N, activations, buffers."""
    run = ours(binaries, model, 2, LINES[3][2], 1, RETURN_PAGES)
    ledger = run["ledger_peak_bytes"]
    states = ledger["master"] * 4  # parameter, gradient and two moments of its shard, fp32
    buffers = ledger["gradients"] - ledger["master"]
    program, tensors = (statistics.mean(run[key]) for key in ("pss_at_start", "tensors_peak"))
    peak = statistics.mean(run["pss_peak"])
    parts = [f"{part / 2**20:.0f}" for part in (program, states, tensors, buffers)]
    return (f"- peak of a rank: {peak / 2**20:.0f} MiB, {peak / (program + states + tensors + buffers):.3f} "
            f"of program {parts[0]} + states/2 {parts[1]} + activations {parts[2]} + gradient buffers "
            f"{parts[3]} (a run of its own, in which freed pages are returned at once)\n")


def measure(binaries, model, ranks, how, steps):
    if isinstance(how, str):
        return cpu_steps.measure(model, how, ranks,
                                 ["--device", "cpu", "--steps", str(steps + WARM_UP)])
    return ours(binaries, model, ranks, how, steps)


def section(model, runs, rule, alone, both):
    def step(name):
        return statistics.median(run["step_s"] for run in runs[name])

    def pss(name):
        return statistics.median(statistics.mean(run["pss_peak"]) for run in runs[name])

    engine, plain = LINES[1][0], LINES[0][0]
    floor, sharded = LINES[2][0], LINES[3][0]
    their_floor, fsdp2 = LINES[4][0], LINES[6][0]
    rows = []
    for name, _, how in LINES:
        base = {engine: plain, sharded: floor}.get(name, their_floor if isinstance(how, str) else name)
        taken = [run["step_s"] for run in runs[name]]
        last = runs[name][0]
        rows.append([name, f"{step(name):.4f}", f"{min(taken):.4f} to {max(taken):.4f}",
                     f"{step(name) / step(base):.3f}", f"{pss(name) / 2**20:.0f}",
                     f"{last['first_loss']:.4f}", f"{last['loss']:.4f}"])
    length, batch = SHAPES[model]
    wire = runs[sharded][0]["wire_bytes_per_step"]
    return (f"## {model}, sequence {length}, batch {batch} per rank, fp32, one thread per rank\n\n" +
            machine.table(["line", "s/step", "range", "ratio", "PSS peak MiB per rank", "first loss",
                           "last loss"], rows) +
            f"- FULL_SHARD over the floor, both ranks in turn: {both}; required: 1.02\n"
            f"- engine over plain on one rank, in turn: {alone}; required: 1.01\n"
            f"- memory per rank over FSDP2's: {pss(sharded) / pss(fsdp2):.3f}\n"
            f"{rule}- bytes that a ring would carry per rank and step: {wire / 2**20:.0f} MiB\n\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="timed steps of each of our runs")
    parser.add_argument("--pairs", type=int, default=25, help="pairs of steps, plain and with the engine")
    parser.add_argument("--models", nargs="+", default=["llama-110m"])
    arguments = parser.parse_args()
    text = machine.head("The tax of a sharded step", f"bench/step_tax.sh --rounds {arguments.rounds} "
                        f"--steps {arguments.steps} --pairs {arguments.pairs} "
                        f"--models {' '.join(arguments.models)}")
    text += ("Ratios: the engine over plain, FULL_SHARD over two plain processes at once, PyTorch's "
             "lines over PyTorch's own two processes. PSS is the proportional set size, sampled "
             "every 5 ms during one step that is not timed, the mean of the ranks. Losses are rank "
             "0's; every line starts from the same weights and data.\n\n")
    for model in arguments.models:
        runs = {name: [] for name, _, _ in LINES}
        for _ in range(arguments.rounds):
            for name, ranks, how in LINES:
                runs[name].append(measure(arguments.binaries, model, ranks, how, arguments.steps))
                print(f"{model}: {name}: {runs[name][-1]['step_s']:.4f} s", file=sys.stderr)
        alone, both = (paired(arguments.binaries, model, ranks, arguments.pairs) for ranks in (1, 2))
        text += section(model, runs, memory_rule(arguments.binaries, model), alone, both)
    machine.write("step_tax.md", text)


if __name__ == "__main__":
    main()
