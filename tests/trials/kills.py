# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed at random instants, the clock set back or forward meanwhile, and resumed."""
import functools
import hashlib
import json
import os
import shutil
import subprocess
import time

import commands

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "models", "llama")
STEPS = 240
CONFIGURATIONS = {
    "FULL_SHARD": ["--ranks", "2"],
    "SHARD_GRAD_OP, 3 ranks": ["--ranks", "3", "--strategy", "SHARD_GRAD_OP"],
    "NO_SHARD, saves beside steps": ["--ranks", "2", "--strategy", "NO_SHARD", "--async-save"],
    "one rank, keeps 1": ["--ranks", "1", "--keep", "1"],
    "HYBRID_SHARD, 4 ranks": ["--ranks", "4", "--strategy", "HYBRID_SHARD", "--sharding-factor", "2"],
    "bf16 in 2 parts": ["--ranks", "2", "--precision", "bf16", "--accumulate", "2"],
    "LoRA with dropout": ["--ranks", "2", "--lora-rank", "4", "--lora-alpha", "8", "--lora-dropout", "0.1"],
    "optimizer on a disk": ["--ranks", "2", "--offload", "optimizer:states"],
    "best is kept": ["--ranks", "2", "--eval-data", "t.bin", "--eval-every", "40", "--max-eval-samples", "8", "--keep-best", "--async-save"],
    "node-local": ["--ranks", "2", "--node-local"],
}
CLOCKS = [0, 0, -86400, -60, 3600, 86400 * 400]


def make_data(folder):
    os.mkdir(os.path.join(folder, "states"))
    with open(os.path.join(folder, "t.bin"), "wb") as file:
        file.write(b"".join((3 + i * i % 7).to_bytes(2, "little") for i in range(20000)))


def command(binaries, output, flags):
    keep = [] if "--keep" in flags else ["--keep", "2"]
    return [os.path.join(binaries, "fullshard"), "train", "--model", MODEL, "--data", "t.bin", "--sequence-length", "16", "--micro-batch", "2",
            "--lr", "1e-3", "--steps", str(STEPS), "--save-every", "10", "--output", output, *keep, *flags]


def results(run):
    """What a run found in each step, as text, and its weights."""
    steps = {}
    with open(os.path.join(run, "metrics.jsonl")) as file:
        for line in file:
            record = json.loads(line, parse_float=str, parse_int=str)
            if record["step"] in steps:
                raise ValueError(f"step {record['step']} stands twice in metrics.jsonl")
            steps[record["step"]] = [record.get(name) for name in ("loss", "lr", "grad_norm", "eval_loss")]
    digests = {}
    for name in ("model/model.safetensors", "adapter/adapter_model.safetensors"):
        if os.path.exists(os.path.join(run, name)):
            with open(os.path.join(run, name), "rb") as file:
                digests[name] = hashlib.sha256(file.read()).hexdigest()
    if not digests:
        raise ValueError("the run wrote no weights")
    return {"steps": steps, "weights": digests}


@functools.lru_cache
def clock_library(folder):
    library = os.path.join(folder, "clock.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@functools.lru_cache
def reference(binaries, folder, name):
    """The same run, untouched, and how long it took."""
    begin = time.monotonic()
    ended = commands.run(command(binaries, f"whole {name}", CONFIGURATIONS[name]), folder, 300)
    if ended.status != 0:
        raise RuntimeError(f"{name}: the run without kills ended with {ended.status}: {commands.last_error(ended.said)}")
    return results(os.path.join(folder, f"whole {name}")), time.monotonic() - begin


def difference(found, expected):
    if found["steps"].keys() != expected["steps"].keys():
        return f"{len(found['steps'])} steps in metrics.jsonl, expected {len(expected['steps'])}"
    for step, values in expected["steps"].items():
        if found["steps"][step] != values:
            return f"step {step} has {found['steps'][step]}, the untouched run {values}"
    return "" if found["weights"] == expected["weights"] else "the weights differ from the untouched run's"


def litter(folder, run, shared_before):
    """What a run left that it should not have."""
    left = [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shared_before if "fullshard" in name]
    left += [os.path.join("TMPDIR", name) for name in os.listdir(os.path.join(folder, "tmp"))]
    for place, _, names in os.walk(run):
        left += [os.path.join(os.path.relpath(place, folder), name) for name in names if name.endswith((".part", ".partial"))]
    return left


def strike(drawn, process):
    """Kills some of a run; says whom."""
    ranks = commands.ranks_of(process.pid)
    victim = drawn.choice(["a rank", "all ranks", "the launcher", "everything"])
    if victim == "a rank" and ranks:
        commands.kill([drawn.choice(ranks)])
    elif victim == "all ranks" and ranks:
        commands.kill(ranks)
    elif victim == "the launcher":
        commands.kill([process.pid])
    else:
        victim = "everything"
        commands.kill(commands.processes_of(process.pid))
    return victim


def trial(drawn, binaries, folder):
    """(What was done, what was wrong.)"""
    if not os.path.exists(os.path.join(folder, "t.bin")):
        make_data(folder)
    name = drawn.choice(sorted(CONFIGURATIONS))
    expected, usual_s = reference(binaries, folder, name)
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    words = [*command(binaries, "run", CONFIGURATIONS[name]), "--resume", "auto"]
    offset_file = os.path.join(folder, "clock")
    clock = {"LD_PRELOAD": clock_library(folder), "CLOCK_OFFSET": offset_file}
    shared_before = set(os.listdir("/dev/shm"))
    done = [name]
    for _ in range(drawn.randint(1, 3)):
        with open(offset_file, "w") as file:
            file.write(str(drawn.choice(CLOCKS)))
        process = commands.start(words, folder, os.path.join(folder, "said"), **clock)
        delay = drawn.uniform(0.1, usual_s)
        try:
            process.wait(delay / 2)
        except subprocess.TimeoutExpired:
            offset = drawn.choice(CLOCKS)
            with open(offset_file, "w") as file:
                file.write(str(offset))
            try:
                process.wait(delay / 2)
            except subprocess.TimeoutExpired:
                done.append(f"{strike(drawn, process)} after {delay:.2f} s, clock {offset:+d} s")
        is_gone = commands.wait_gone(process.pid)
        process.wait()
        if not is_gone:
            return done, f"processes were left {commands.GONE_WITHIN_S} s after a kill"
    ended = commands.run(words, folder, 300, **clock)
    if ended.status != 0:
        return done, f"--resume auto ended with {ended.status}: {commands.last_error(ended.said)}"
    try:
        wrong = difference(results(run), expected)
    except (OSError, ValueError) as error:
        return done, str(error)
    left = litter(folder, run, shared_before)
    return done, wrong or (f"left behind: {', '.join(left)}" if left else "")
