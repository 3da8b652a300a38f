# SPDX-License-Identifier: Apache-2.0
"""`fullshard generate` beside transformers; writes bench/results/generate.md.

Called by bench/generate.sh. Ours and theirs run in turn, on the same folders and prompts; times are the best of the rounds.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import machine

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import generate as peer  # noqa: E402

PEER = os.path.join(machine.ROOT, "bench", "peers", "generate.py")
PROMPT, NEW = 128, 128
# model, dtype, batches, further flags of ours, whether transformers runs it too
CPU_LINES = [("llama-110m", "float32", [1, 8], [], True)]
CUDA_LINES = [("llama-1.1b", "bfloat16", [1, 16], [], True),
              ("llama-8b", "bfloat16", [32], ["--offload", "param"], False),
              ("llama-8b", "bfloat16", [32], ["--offload", "param", "--resident-share", "0.5"], False)]


def checked(command, **settings):
    ended = subprocess.run(command, capture_output=True, text=True, **settings)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: ended with {ended.returncode}\n{ended.stderr[-2000:]}")
    return ended


def environment(device):
    return dict(os.environ, OMP_NUM_THREADS="1") if device == "cpu" else dict(os.environ)


def theirs(device, *words):
    threads = ["--one-thread"] if device == "cpu" else []
    ended = checked([sys.executable, PEER, *words, *threads], env=environment(device))
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def write_prompts(folder, batch, vocabulary):
    path = os.path.join(folder, f"prompts-{batch}.jsonl")
    with open(path, "w") as lines:
        for tokens in peer.prompts(batch, PROMPT, vocabulary):
            lines.write(json.dumps({"tokens": tokens}) + "\n")
    return path


def ours(arguments, model, dtype, batch, prompts, new, flags):
    command = [os.path.join(arguments.binaries, "fullshard"), "generate", "--model", model, "--prompts", prompts,
               "--batch", str(batch), "--max-new-tokens", str(new), "--min-new-tokens", str(new), "--greedy", "--json",
               "--device", arguments.device, "--precision", "bf16" if dtype == "bfloat16" else "no", *flags]
    ended = checked(command, env=environment(arguments.device))
    records = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    said = [line for line in ended.stderr.splitlines() if line.startswith("weights:") or " steps of " in line]
    return {"seconds": max(record["seconds"] for record in records), "tokens": [r["tokens"] for r in records],
            "said": said}


def measured(arguments, model, dtype, batch, prompts, flags):
    few = min(ours(arguments, model, dtype, batch, prompts, 8, flags)["seconds"] for _ in range(arguments.rounds))
    runs = [ours(arguments, model, dtype, batch, prompts, NEW, flags) for _ in range(arguments.rounds)]
    best = min(runs, key=lambda run: run["seconds"])
    return dict(best, step_s=(best["seconds"] - few) / (NEW - 8))


def first_token(arguments, model, dtype, folder):
    """Seconds from the start of each program to the end of one with a single token."""
    prompts = write_prompts(folder, 1, peer.SHAPES[arguments.first][5])

    def own():
        ours(arguments, model, dtype, 1, prompts, 1, ["--quiet"])

    def other():
        theirs(arguments.device, "first", model, dtype, arguments.device, str(PROMPT))

    found = []
    for act in (own, other):
        act()  # files are in the page cache then
        times = []
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            act()
            times.append(time.perf_counter() - start)
        found.append(min(times))
    return found


def weight_bytes(name, dtype):
    """Of what a step reads: all but the embedding's table, unless it is the head too."""
    layers, width, heads, kv_heads, inner, vocabulary, _ = peer.SHAPES[name]
    head = width // heads
    numel = layers * (2 * width * width + 2 * width * kv_heads * head + 3 * width * inner + 2 * width)
    return (numel + width + vocabulary * width) * (2 if dtype == "bfloat16" else 4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="", help="of the lines, only these, with commas between them")
    parser.add_argument("--page", default="generate.md")
    parser.add_argument("--scratch", default=None, help="folder for the models, up to 20 GB")
    arguments = parser.parse_args()
    arguments.first = "llama-110m" if arguments.device == "cpu" else "llama-1.1b"
    lines = CPU_LINES if arguments.device == "cpu" else CUDA_LINES
    lines = [line for line in lines if not arguments.models or line[0] in arguments.models.split(",")]
    roof = theirs(arguments.device, "roof", arguments.device)[0]
    import transformers
    text = machine.head("Generation", f"bench/generate.sh --device {arguments.device} --rounds {arguments.rounds}",
                        f"transformers {transformers.__version__}, torch {roof['torch']}")
    text += (f"{roof['device'] or 'One thread'}; prompts of {PROMPT} random tokens, {NEW} new ones, greedy, random weights. "
             f"A copy reads and writes {roof['bytes_per_s'] / 1e9:.1f} GB/s; the floor of a step is the time in which the weights "
             "that it uses are read at that speed. Tokens/s are those of whole calls, prompts included.\n\n")
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        made = {}
        for name, dtype, batches, flags, has_peer in lines:
            if name not in made:
                for old in made.values():
                    subprocess.run(["rm", "-rf", old], check=True)
                made[name] = os.path.join(folder, name)
                theirs(arguments.device, "make", made[name], name, dtype, arguments.device)
            rows, notes = [], []
            others = theirs(arguments.device, "run", made[name], dtype, arguments.device,
                            ",".join(map(str, batches)), str(PROMPT), str(NEW), str(arguments.rounds)) if has_peer else []
            for batch in batches:
                prompts = write_prompts(folder, batch, peer.SHAPES[name][5])
                own = measured(arguments, made[name], dtype, batch, prompts, flags)
                beside = [found for found in others if found["batch"] == batch]
                floor = weight_bytes(name, dtype) / roof["bytes_per_s"]
                same = [found["tokens"] == own["tokens"] for found in beside]
                for label, found in [("fullshard generate", own)] + [
                        (f"transformers, {found['cache']} cache", found) for found in beside]:
                    rows.append([batch, label, f"{1000 * found['step_s']:.2f}", f"{batch * NEW / found['seconds']:.0f}",
                                 f"{floor / found['step_s']:.2f}",
                                 f"{min([o['step_s'] for o in beside], default=0) / found['step_s']:.2f}" if beside else "–"])
                notes += [f"Batch {batch}, as the command says it: {'; '.join(own['said'])}."]
                if beside:
                    notes += [f"Batch {batch}: the tokens are {'' if all(same) else 'not all '}those of transformers."]
            text += f"\n## {name}, {dtype}{' ' if flags else ''}{' '.join(flags)}\n\n" + machine.table(
                ["batch", "line", "ms/step", "tokens/s", "of the floor", "steps/s by the faster peer's"], rows)
            text += "".join(f"{note}\n" for note in notes) + "\n"
        if arguments.first in made and os.path.isdir(made[arguments.first]):
            dtype = "float32" if arguments.device == "cpu" else "bfloat16"
            own, other = first_token(arguments, made[arguments.first], dtype, folder)
            text += (f"## Start to first token, {arguments.first}\n\n" + machine.table(
                ["line", "s", "of transformers'"],
                [["fullshard generate", f"{own:.2f}", f"{own / other:.2f}"], ["transformers", f"{other:.2f}", "1.00"]]))
    machine.write(arguments.page, text)


if __name__ == "__main__":
    main()
