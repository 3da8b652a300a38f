# SPDX-License-Identifier: Apache-2.0
"""fp8 on one GPU: steps of `fullshard train` in bf16 and fp8 beside PyTorch FSDP2 with torchao's float8 (where torchao can
be imported), and losses over some hundred steps on real text; writes bench/results/fp8.md.

Called by bench/fp8.sh. Rounds go through all lines in turn. The text is Python's own library, sources and all.
"""
import argparse
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
ALL_E4M3 = "distributed_type: FSDP\nmixed_precision: fp8\nfp8_config:\n  format: E4M3\n"
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


def losses_of(arguments, folder, model, precision, seed):
    """The losses of a run, each step's; None where it failed."""
    data = os.path.join(folder, "pairs.jsonl" if model == "t5-small" else "text.txt")
    records = gpu_lines.train(arguments.binaries, ["--model", model, "--tokenizer", arguments.tokenizer, "--data", data, "--steps", str(arguments.curve_steps),
                                                   "--lr", "6e-4", "--warmup", "50", "--schedule", "cosine", "--seed", str(seed),
                                                   *CURVES[model], *precision], folder)
    return None if records is None else [record["loss"] for record in records]


def repeat_section(arguments, folder, known):
    """The two formats with other seeds: weights and batches are drawn anew. `known`: (model, format) to the end of seed 0."""
    text = ("### With other seeds\n\nWeights and the order of batches are drawn anew; means of the last 50 steps.\n\n")
    rows = []
    for model in CURVES:
        ratios = []
        for seed in range(arguments.seeds):
            ends = {}
            for name, precision in FORMATS.items():
                ends[name] = known.get((model, name)) if seed == 0 else None
                if ends[name] is None:
                    losses = losses_of(arguments, folder, model, precision, seed)
                    ends[name] = statistics.mean(losses[-50:]) if losses else None
            if all(ends.values()):
                ratios.append(ends["fp8"] / ends["bf16"])
                rows.append([model, seed, f"{ends['bf16']:.4f}", f"{ends['fp8']:.4f}", f"{ratios[-1] - 1:+.2%}"])
                print(rows[-1], flush=True)
        if len(ratios) > 1:
            rows.append([model, "mean", "", "", f"{statistics.mean(ratios) - 1:+.2%} ± {statistics.stdev(ratios) / len(ratios) ** 0.5:.2%}"])
            print(rows[-1], flush=True)
    return text + machine.table(["model", "seed", "bf16", "fp8", "of bf16"], rows)


def curve_section(arguments, folder):
    size = real_text(folder)
    arguments.tokenizer = make_tokenizer(arguments, folder)
    tokens = "Bytes" if arguments.tokenizer == "bytes" else f"{PIECES:,} pieces of words"
    e4m3 = os.path.join(folder, "e4m3.yaml")
    with open(e4m3, "w") as file:
        file.write(ALL_E4M3)
    formats = dict(FORMATS)
    if arguments.e4m3:
        formats["fp8, gradients in e4m3 too"] = ["--config", e4m3]
    steps = arguments.curve_steps
    shown = [step for step in (1, 50, 100, 200, 300, 400, 500) if step <= steps]
    text = (f"## Losses over {steps} steps\n\n{tokens} of Python's library ({size / 1e6:.1f} MB), the same batches on every line. "
            "The last column is the mean of the last 50 steps relative to bf16.\n\n")
    rows, known = [], {}
    for model in CURVES:
        base = None
        for name, precision in formats.items():
            losses = losses_of(arguments, folder, model, precision, 0)
            if losses is None:
                continue
            last = known[model, name] = statistics.mean(losses[-50:])
            base = base or last
            rows.append([model, name, *(f"{losses[step - 1]:.4f}" for step in shown), f"{last:.4f}", f"{last / base - 1:+.2%}"])
            print(rows[-1], flush=True)
    text += machine.table(["model", "line", *(f"step {step}" for step in shown), "last 50", "of bf16"], rows)
    return text + (repeat_section(arguments, folder, known) if arguments.seeds > 1 else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--curve-steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3, help="how often the losses of both formats are compared")
    parser.add_argument("--tokens", default="pieces", choices=["pieces", "bytes"], help="of the text whose losses are compared")
    parser.add_argument("--e4m3", action="store_true", help="also losses with gradients in e4m3")
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
