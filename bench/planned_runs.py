# SPDX-License-Identifier: Apache-2.0
"""Plans and simulations beside runs of our own on one GPU; writes bench/results/planned_runs.md.

Called by bench/planned_runs.sh. Every line trains for some steps, and is planned (by `train` itself, before it
starts) and simulated with the kernels that `fullshard bench kernels` has just timed. Nothing is fitted.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import machine

BF16 = ["--precision", "bf16", "--strategy", "FULL_SHARD"]
# Name, what describes the model and its step to every command, what only train needs.
TOKENS, TEXT, PAIRS = ["--data", "tokens.bin"], ["--data", "text.txt", "--tokenizer", "letters"], [
    "--data", "pairs.jsonl", "--tokenizer", "bytes", "--task", "translation", "--source-lang", "a", "--target-lang", "b"]


def causal(model, batch, length, *extra):
    return (["--model", model, "--micro-batch", str(batch), "--sequence-length", str(length), *extra], TOKENS)


RUNS = {
    "gpt2-124m, 32 x 1024": causal("gpt2-124m", 32, 1024),
    "gpt2-124m, 4 x 1024": causal("gpt2-124m", 4, 1024),
    "llama-1.1b, 8 x 2048": causal("llama-1.1b", 8, 2048),
    "llama-1.1b, 8 x 2048, recomputed": causal("llama-1.1b", 8, 2048, "--recompute"),
    "llama-1.1b, 8 x 2048, accumulated over 4": causal("llama-1.1b", 8, 2048, "--accumulate", "4"),
    "llama-1.1b, 8 x 2048, optimizer on the host":
        causal("llama-1.1b", 8, 2048, "--offload", "optimizer", "--offload-step", "device"),
    "llama-3b, 4 x 2048": causal("llama-3b", 4, 2048),
    "BERT-base, 32 x 512": (["--model", "bert-base", "--micro-batch", "32", "--sequence-length", "512"], TEXT),
    "T5-base, 16 x 512 + 512":
        (["--model", "t5-base", "--micro-batch", "16", "--sequence-length", "512", "--target-length", "512"], PAIRS),
    "llama-8b, 8 x 2048, recomputed": causal("llama-8b", 8, 2048, "--recompute"),
}


def make_data(folder):
    drawn = random.Random(0)
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        file.write(b"".join(drawn.randrange(32000).to_bytes(2, "little") for _ in range(1_500_000)))
    text = lambda number: "".join(drawn.choice("abcdefghijklmnop ") for _ in range(number))
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.write(text(1_500_000))
    with open(os.path.join(folder, "pairs.jsonl"), "w") as file:
        for _ in range(600):
            file.write(json.dumps({"translation": {"a": text(600), "b": text(600)}}) + "\n")
    os.mkdir(os.path.join(folder, "letters"))
    letters = "abcdefghijklmnopqrstuvwxyz"
    with open(os.path.join(folder, "letters", "vocab.txt"), "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + x for x in letters)]) + "\n")


def merged(tables):
    """One table of all kernels; a shape that several models share is timed by the first."""
    kernels = {}
    for table in tables:
        for kernel in table["kernels"]:
            kernels.setdefault(json.dumps([kernel["name"], kernel.get("dims"), kernel.get("dtype"), kernel.get("bytes")]), kernel)
    return {"device": tables[0]["device"], "kernels": list(kernels.values())}


class Runner:
    def __init__(self, program, folder, steps):
        self.program, self.folder, self.steps = program, folder, steps

    def call(self, *arguments):
        done = subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def kernels(self, model):
        return json.loads(self.call("bench", "kernels", "--ranks", "1", *BF16, *model))

    def train(self, model, data):
        """Median seconds of a step, and peak bytes, planned and measured."""
        self.call("train", "--ranks", "1", "--device", "cuda", "--steps", str(self.steps), "--lr", "1e-4", "--output", "run",
                  "--overwrite", "--no-save-model", "--quiet", *BF16, *model, *data)
        with open(os.path.join(self.folder, "run", "run.json")) as file:
            planned = json.load(file)["memory_plan"]["planned"]["device"]["peak_bytes"]
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as file:
            steps = [json.loads(line) for line in file]
        return (statistics.median(step["step_s"] for step in steps[3:]), planned,
                max(step["device_peak_bytes"] for step in steps))

    def simulate(self, model, *extra):
        return json.loads(self.call("simulate", "--cluster", "h200", "--ranks", "1", "--json", *BF16, *model, *extra))["step_s"]


def table(rows):
    lines = ["| run | planned, GiB | measured, GiB | planned / measured | measured, ms | simulated with timed kernels, ms | "
             "simulated / measured | simulated with the shipped kernels, ms | simulated / measured |", "|" + " --- |" * 9]
    for name, planned, measured, seconds, simulated, roofline in rows:
        lines.append(f"| {name} | {planned / 2**30:.2f} | {measured / 2**30:.2f} | {planned / measured:.3f} | {seconds * 1e3:.1f} | "
                     f"{simulated * 1e3:.1f} | {simulated / seconds:.3f} | {roofline * 1e3:.1f} | {roofline / seconds:.3f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.path.join(machine.ROOT, "build", "cuda", "bin", "fullshard"))
    parser.add_argument("--output", default=os.path.join(machine.ROOT, "bench", "results", "planned_runs.md"))
    parser.add_argument("--kernels", help="also keep the times of kernels as this file")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no line after that many")
    parser.add_argument("--only", nargs="*", help="lines, by the beginning of their names")
    given = parser.parse_args()
    begin, rows, tables = time.time(), [], []
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder)
        runner = Runner(os.path.abspath(given.program), folder, given.steps)
        for name, (model, data) in RUNS.items():
            if given.only and not any(name.startswith(word) for word in given.only):
                continue
            if time.time() - begin > given.seconds:
                print(f"{name}: left out, no time", flush=True)
                continue
            try:
                tables.append(runner.kernels(model))
                times = os.path.join(folder, "kernels.json")
                with open(times, "w") as file:
                    json.dump(merged(tables), file)
                seconds, planned, measured = runner.train(model, data)
                rows.append((name, planned, measured, seconds, runner.simulate(model, "--kernels", times), runner.simulate(model)))
                print(table(rows[-1:]).splitlines()[-1], f"after {time.time() - begin:.0f} s", flush=True)
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
    if given.kernels and tables:
        whole = merged(tables)
        with open(given.kernels, "w") as file:
            lines = ",\n".join("  " + json.dumps(kernel) for kernel in whole["kernels"])
            file.write(f'{{"device": {json.dumps(whole["device"])}, "kernels": [\n{lines}]}}\n')
    with open(given.output, "w") as file:
        file.write(machine.head("Plans and simulations beside runs on one GPU", "bench/planned_runs.sh", peers=""))
        file.write("\nbf16, AdamW, clipping at 1; medians of the steps after 3; memory is the peak of what the allocator handed out.\n\n")
        file.write(table(rows))


if __name__ == "__main__":
    main()
