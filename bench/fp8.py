# SPDX-License-Identifier: Apache-2.0
"""fp8 on one GPU: steps of `fullshard train` in bf16 and fp8 beside PyTorch FSDP2 with torchao's float8 (where torchao can
be imported), and losses over some hundred steps on real text; writes bench/results/fp8.md.

Called by bench/fp8.sh. Rounds go through all lines in turn. The text is Python's own library, sources and all.
"""
import argparse
import concurrent.futures
import glob
import importlib.metadata
import importlib.util
import json
import os
import statistics
import sys
import sysconfig
import tempfile

import gpu_lines
import machine

WARM_UP = 4
PEER = os.path.join(machine.ROOT, "bench", "peers", "train_step.py")
# Model: sequence length, batch, more flags, required tokens/s and GiB of fp8.
STEPS = {"llama-1.1b": (2048, 8, [], 95e3, 27), "llama-3b": (2048, 4, [], 33e3, 52), "llama-8b": (2048, 8, ["--recompute"], None, None)}
FORMATS = {"bf16": ["--precision", "bf16"], "fp8": ["--precision", "fp8"]}
NUDGED = "bf16, nudged"
# Of the losses: more flags, learning rate.
LINES = {"bf16": (FORMATS["bf16"], "6e-4"), NUDGED: (FORMATS["bf16"], "6.0001e-4"), "fp8": (FORMATS["fp8"], "6e-4")}
LAST = 50
PIECES = 16000
CURVES = {"gpt2-124m": ["--sequence-length", "512", "--micro-batch", "16"],
          "llama-110m": ["--sequence-length", "512", "--micro-batch", "16"],
          "t5-small": ["--task", "translation", "--source-lang", "a", "--target-lang", "b", "--sequence-length", "128",
                       "--target-length", "128", "--micro-batch", "32"]}


def own_step(arguments, model, words, folder):
    length, batch, more, *_ = STEPS[model]
    records = gpu_lines.train(arguments.binaries, ["--model", model, "--data", "tokens.bin", "--order", "sequential", "--sequence-length",
                                                   str(length), "--micro-batch", str(batch), "--steps", str(arguments.steps + WARM_UP),
                                                   "--lr", "1e-4", "--schedule", "constant", *more, *words], folder)
    return gpu_lines.step_of(records, WARM_UP)


def peer_step(arguments, model, words):
    length, batch, more, *_ = STEPS[model]
    return gpu_lines.peer_step([PEER, "--mode", "fsdp2", "--compile", "--model", model, "--seq", str(length), "--batch", str(batch),
                                "--steps", str(arguments.steps + WARM_UP), *more, *words])


def step_section(arguments, model, folder):
    length, batch, more, speed, memory = STEPS[model]
    lines = {f"fullshard train, {name}": lambda words=words: own_step(arguments, model, words, folder) for name, words in FORMATS.items()}
    if importlib.util.find_spec("torchao") and model in arguments.peers:
        for recipe in arguments.recipes:
            lines[f"PyTorch FSDP2, compiled, torchao {recipe}"] = (
                lambda recipe=recipe: peer_step(arguments, model, ["--float8", recipe]))
    found = {name: [] for name in lines}
    for _ in range(arguments.rounds):
        for name, measure in lines.items():
            found[name].append(measure())
    found = {name: [one for one in runs if one] for name, runs in found.items()}
    step = {name: statistics.median(one[0] for one in runs) for name, runs in found.items() if runs}
    base = step.get("fullshard train, bf16")
    rows = [[name, f"{step[name] * 1000:.1f}", f"{length * batch / step[name]:,.0f}", f"{base / step[name]:.2f}" if base else "-",
             f"{max(one[1] for one in found[name]):.1f}"] for name in step]
    text = f"## {model}, sequence {length}, batch {batch}{', recomputed' if more else ''}\n\n"
    text += f"Required of fp8: {speed:,.0f} tokens/s, {memory} GiB.\n\n" if speed else "Required: 1.3 of bf16.\n\n"
    return text + machine.table(["line", "ms/step", "tokens/s", "of bf16", "peak GiB"], rows)


def real_text(folder):
    """Python's library as one text, and as pairs of neighbouring lines."""
    paths = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "**", "*.py"), recursive=True))
    size = 0
    with open(os.path.join(folder, "text.txt"), "w") as text, open(os.path.join(folder, "pairs.jsonl"), "w") as pairs:
        for path in paths:
            if "site-packages" in path or size > 12_000_000:
                continue
            with open(path, errors="ignore") as file:
                content = file.read()
            size += len(content)
            text.write(content)
            lines = [line.strip() for line in content.splitlines() if len(line.strip()) > 20]
            for one, other in zip(lines[::2], lines[1::2]):
                pairs.write(json.dumps({"translation": {"a": one, "b": other}}) + "\n")
    return size


def make_tokenizer(arguments, folder):
    """What train is given: pieces of words learned from the text, as those models are trained on, where tokenizers can be imported; else bytes."""
    if arguments.tokens == "bytes" or not importlib.util.find_spec("tokenizers"):
        return "bytes"
    import tokenizers
    pieces = tokenizers.ByteLevelBPETokenizer()
    pieces.train([os.path.join(folder, "text.txt")], vocab_size=PIECES, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False)
    made = os.path.join(folder, "pieces")
    os.mkdir(made)
    pieces.save(os.path.join(made, "tokenizer.json"))
    with open(os.path.join(made, "tokenizer_config.json"), "w") as file:
        json.dump({"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}, file)
    return made


def losses_of(arguments, folder, model, line, seed):
    """The losses of a run, each step's; None where it failed."""
    words, rate = LINES[line]
    own = tempfile.mkdtemp(dir=folder)
    data = os.path.join(folder, "pairs.jsonl" if model == "t5-small" else "text.txt")
    records = gpu_lines.train(arguments.binaries, ["--model", model, "--tokenizer", arguments.tokenizer, "--data", data, "--steps", str(arguments.curve_steps),
                                                   "--lr", rate, "--warmup", "50", "--schedule", "cosine", "--seed", str(seed),
                                                   *CURVES[model], *words], own)
    if records is None:
        return None
    losses = [record["loss"] for record in records]
    print(model, line, seed, f"{statistics.mean(losses[-LAST:]):.4f}", flush=True)
    return losses


def all_losses(arguments, folder):
    """(model, line, seed) to the losses of its run; some runs at a time, since only their losses count."""
    runs = [(model, line, seed) for seed in range(arguments.seeds) for model in CURVES for line in LINES]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        found = pool.map(lambda run: losses_of(arguments, folder, *run), runs)
        return {run: losses for run, losses in zip(runs, found) if losses}


def seed_rows(found, model, seeds):
    """A row per seed and one of their means: fp8, and bf16 with the nudge, relative to bf16."""
    rows, ratios = [], []
    for seed in range(seeds):
        ends = {line: statistics.mean(found[model, line, seed][-LAST:]) for line in LINES if (model, line, seed) in found}
        if len(ends) < len(LINES):
            continue
        both = (ends["bf16"] + ends[NUDGED]) / 2
        ratios.append(ends["fp8"] / both - 1)
        rows.append([model, seed, *(f"{ends[line]:.4f}" for line in LINES), f"{ends[NUDGED] / ends['bf16'] - 1:+.2%}", f"{ratios[-1]:+.2%}"])
    if len(rows) > 1:
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        rows.append([model, "mean", "", "", "", "", f"{statistics.mean(ratios):+.2%} ± {error:.2%}"])
    return rows


def curve_section(arguments, folder):
    size = real_text(folder)
    arguments.tokenizer = make_tokenizer(arguments, folder)
    tokens = "Bytes" if arguments.tokenizer == "bytes" else f"{PIECES:,} pieces of words"
    found = all_losses(arguments, folder)
    steps = arguments.curve_steps
    shown = [step for step in (1, 50, 100, 200, 300, 400, 500) if step <= steps]
    rows = [[model, line, *(f"{found[model, line, 0][step - 1]:.4f}" for step in shown)]
            for model in CURVES for line in LINES if (model, line, 0) in found]
    text = (f"## Losses over {steps} steps\n\n{tokens} of Python's library ({size / 1e6:.1f} MB), the same batches on every line. Seed 0:\n\n"
            + machine.table(["model", "line", *(f"step {step}" for step in shown)], rows))
    text += (f"Means of the last {LAST} steps, with weights and the order of batches drawn anew for every seed. The nudged runs show what is "
             "chance: they are bf16 with a learning rate 0.002 % higher. fp8 is relative to the mean of both bf16 runs.\n\n")
    rows = [row for model in CURVES for row in seed_rows(found, model, arguments.seeds)]
    return text + machine.table(["model", "seed", *LINES, "nudged of bf16", "fp8 of bf16"], rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--curve-steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3, help="how often the losses of both formats are compared")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time where losses are compared")
    parser.add_argument("--tokens", default="pieces", choices=["pieces", "bytes"], help="of the text whose losses are compared")
    parser.add_argument("--models", nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--peers", nargs="*", default=["llama-1.1b", "llama-3b"], help="models that torchao trains too")
    parser.add_argument("--recipes", nargs="+", default=["tensorwise", "rowwise"])
    arguments = parser.parse_args()
    import torch
    peers = f"torch {torch.__version__}"
    if importlib.util.find_spec("torchao"):
        peers += f", torchao {importlib.metadata.version('torchao')}"
    text = machine.head("fp8 on one GPU", f"bench/fp8.sh {' '.join(sys.argv[1:])}".strip(), peers).rstrip() + "\n"
    text += f"- GPU: {torch.cuda.get_device_name()}\n\n"
    text += ("fp32 master weights, AdamW, clipping at 1, random tokens, FULL_SHARD on one rank; medians of the steps after "
             f"{WARM_UP}, then over the rounds; memory is the peak of what the allocator handed out.\n\n")
    with tempfile.TemporaryDirectory() as folder:
        import numpy
        numpy.random.default_rng(0).integers(0, 32000, 4_000_000).astype("<u2").tofile(os.path.join(folder, "tokens.bin"))
        for model in arguments.models:
            text += step_section(arguments, model, folder)
            print(text[text.rindex("## "):], flush=True)
        if arguments.curve_steps:
            text += curve_section(arguments, folder)
    machine.write("fp8.md", text)


if __name__ == "__main__":
    main()
