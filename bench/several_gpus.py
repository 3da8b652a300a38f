# SPDX-License-Identifier: Apache-2.0
"""Everything that only several GPUs can show of `fullshard train`, in one command; writes several_gpus.md.

Called by bench/several_gpus.sh. Answers are "yes", "NO" or "not shown", with the reason; a "NO" ends it with status 1. With
one GPU, ranks share it where sharing shows something; without one, ranks are CPU processes.
"""
import argparse
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import ranks

MODELS = {"gpt2-124m": (1024, 32), "llama-110m": (1024, 16), "llama-1.1b": (2048, 8)}  # sequence length, batch per GPU
CPU_MODELS = {"llama-15m": (64, 1)}
QUICK_MODELS = {"tiny": (16, 1)}
WARM_UP = 4
BITS_STEPS = 4
GLOBAL_BATCH = 8  # of the comparison of bits, whatever the number of ranks
START_LIMIT_S = 600  # until a run that is to be disturbed has made its first steps
ATTEMPTS = 3  # to name a death in time: the machine may be busy


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.gpus = [] if arguments.cpu else ranks.visible_gpus()
        self.device = "cuda" if self.gpus else "cpu"
        self.binaries = arguments.binaries or built_binaries(self.device)
        self.tokens = ranks.random_tokens(folder)
        self.tiny = ranks.tiny_model(folder)
        self.models = QUICK_MODELS if arguments.quick else MODELS if self.gpus else CPU_MODELS
        most = len(self.gpus) or os.cpu_count() or 1
        self.counts = arguments.ranks or [count for count in (1, 2, 4, 8) if count <= max(most, 2)]
        self.precisions = ["fp32"] if arguments.quick else ["fp32", "bf16"]
        self.answers = []  # question, answer, "yes" | "NO" | "not shown"

    def answer(self, question, text, is_well):
        verdict = {True: "yes", False: "NO", None: "not shown"}[is_well]
        self.answers.append([question, text, verdict])
        print(f"{question}: {text} ({verdict})", file=sys.stderr, flush=True)

    def has_own_gpus(self, count):
        return count <= len(self.gpus)

    def run(self, count, words, model=None, device=None):
        model = self.tiny if model in (None, "tiny") else model
        device = device or self.device
        words = ["--model", model, "--from-scratch", "--data", self.tokens, "--device", device, *words]
        if model != self.tiny:
            words.remove("--from-scratch")
        if device == "cuda" and count > 1 and self.has_own_gpus(count):
            words += ["--backend", "nccl"]  # or refused: never another link in silence
        return ranks.Run(self.binaries, self.folder, count, words)


def built_binaries(device):
    """The programs' folder; builds them where there are none."""
    preset, folder = ("cuda", "build/cuda") if device == "cuda" else ("release", "build")
    folder = os.path.join(machine.ROOT, folder)
    if not os.path.exists(os.path.join(folder, "bin", "fullshard-core")):
        subprocess.run(["cmake", "--preset", preset], cwd=machine.ROOT, check=True, stdout=sys.stderr)
        subprocess.run(["ninja", "-C", folder, "fullshard_command", "fullshard-core"], check=True, stdout=sys.stderr)
    return os.path.join(folder, "bin")


# Bits: for one number of ranks all strategies give the same losses and the same weights.

def strategies(count):
    words = {name: ["--strategy", name] for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")}
    if count >= 4:
        words["HYBRID_SHARD"] = ["--strategy", "HYBRID_SHARD", "--sharding-factor", str(count // 2)]
    return words


def bits_run(bench, count, precision, words, device=None):
    """Losses and a hash of the weights; the end of its errors where it failed."""
    words = ["--sequence-length", "32", "--micro-batch", str(GLOBAL_BATCH // count), "--steps", str(BITS_STEPS),
             "--precision", "no" if precision == "fp32" else precision, "--deterministic", "--tf32", "off", *words]
    run = bench.run(count, words, device=device)
    if not run.finish():
        return run.errors()[-300:].strip()
    return [record["loss"] for record in run.records()], run.weights_hash()


def farthest(losses, others):
    return max(abs(one - other) / abs(other) for one, other in zip(losses, others))


def bits(bench):
    rows, differing, failed, one_rank = [], [], [], {}
    for count in bench.counts:
        for precision in bench.precisions:
            found = {name: bits_run(bench, count, precision, words) for name, words in strategies(count).items()}
            failed += [f"{count} ranks, {precision}, {name}: {run}" for name, run in found.items() if isinstance(run, str)]
            if any(isinstance(run, str) for run in found.values()):
                continue
            losses, weights = next(iter(found.values()))
            is_same = all(run == (losses, weights) for run in found.values())
            if not is_same:
                differing.append(f"{count} ranks, {precision}")
            one_rank.setdefault(precision, losses)
            rows.append([count, precision, ", ".join(found), "yes" if is_same else "NO", weights[:12],
                         f"{farthest(losses, one_rank[precision]):.1e}"])
    text = "losses and weights alike under all strategies" if not differing else "differ: " + "; ".join(differing)
    if failed:
        text = failed[0]
    asked = f"{', '.join(map(str, bench.counts))} ranks, {' and '.join(bench.precisions)}"
    bench.answer("bits", f"{text} ({asked})", not differing and not failed)
    if bench.device == "cuda":
        against_cpu(bench)
    return machine.table(["ranks", "precision", "strategies", "same bits", "SHA-256 of the weights",
                          f"losses from those of {bench.counts[0]} rank(s)"], rows)


def against_cpu(bench):
    """Kernels round in other places there, so it is a distance and not a matter of bits."""
    count = bench.counts[-1]
    own, cpu = (bits_run(bench, count, "fp32", ["--strategy", "FULL_SHARD"], device) for device in ("cuda", "cpu"))
    if isinstance(own, str) or isinstance(cpu, str):
        bench.answer("losses beside the CPU's", own if isinstance(own, str) else cpu, False)
        return
    distance = farthest(own[0], cpu[0])
    bench.answer("losses beside the CPU's", f"{distance:.1e} away in fp32, {count} ranks", distance < 1e-4)


# Scaling: the same batch on every rank, and what a step waits for.

def scaling_run(bench, model, count):
    length, batch = bench.models[model]
    words = ["--sequence-length", str(length), "--micro-batch", str(batch), "--steps", str(bench.arguments.steps + WARM_UP),
             "--precision", "bf16" if bench.device == "cuda" else "no", "--strategy", "FULL_SHARD", "--no-save-model"]
    run = bench.run(count, words, model)
    if not run.finish():
        return run.errors()[-300:].strip()
    records = run.records()[WARM_UP:]
    step = statistics.median(record["step_s"] for record in records)
    peak = "device_peak_bytes" if bench.device == "cuda" else "host_peak_bytes"
    return {"step": step, "tokens": count * length * batch / step, "gib": max(record[peak] for record in records) / 2**30,
            "exposed": statistics.median(record["exposed_comm_s"] for record in records)}


def scaling(bench):
    # Ranks that share a GPU share its speed: they show nothing of scaling.
    counts = [count for count in bench.counts if not bench.gpus or bench.has_own_gpus(count)]
    rows = []
    for model in bench.models:
        first = None
        for count in counts:
            found = scaling_run(bench, model, count)
            if isinstance(found, str):
                bench.answer(f"scaling of {model}", f"{count} ranks: {found}", False)
                continue
            first = first or (count, found)
            of_linear = found["tokens"] / (first[1]["tokens"] / first[0] * count)
            rows.append([model, count, f"{found['step'] * 1000:.1f}", f"{found['tokens']:,.0f}", f"{of_linear:.2f}",
                         f"{found['exposed'] * 1000:.1f}", f"{found['exposed'] / found['step']:.1%}",
                         f"{(found['step'] - first[1]['step']) * 1000:.1f}", f"{found['gib']:.2f}"])
    what = "GPU" if bench.gpus else "CPU rank"
    for model in bench.models:
        own = [row for row in rows if row[0] == model]
        if own and bench.gpus and len(own) > 1:
            bench.answer(f"scaling of {model}", f"{own[-1][4]} of linear on {own[-1][1]} GPUs", True)
            bench.answer(f"exposed communication of {model}", f"{own[-1][6]} of a step on {own[-1][1]} GPUs", True)
            bench.answer(f"memory per GPU of {model}", " → ".join(row[8] for row in own) + " GiB on "
                         + ", ".join(str(row[1]) for row in own) + " GPUs", True)
        elif own:
            reason = "one GPU is visible" if bench.gpus else "no GPU is visible"
            bench.answer(f"scaling, exposed communication and memory of {model} on several GPUs",
                         f"{reason}; measured: {own[-1][1]} {what}", None)
    return machine.table(["model", "ranks", "ms/step", "tokens/s", "of linear", "exposed ms", "of the step",
                          "ms over the first line", f"peak GiB per {what}"], rows)


# Contexts and faults: a run that is looked at and disturbed in the middle.

def disturbed_run(bench, count):
    run = bench.run(count, ["--sequence-length", "32", "--micro-batch", "1", "--steps", "1000000", "--strategy",
                            "FULL_SHARD", "--no-save-model", "--step-timeout", str(bench.arguments.step_timeout)])
    run.start()
    if run.await_steps(3, START_LIMIT_S) and len(run.ranks()) == count:
        return run
    run.end()
    return None


def contexts(bench):
    if not bench.gpus:
        bench.answer("contexts", "no GPU is visible", None)
        return
    count = bench.counts[-1]
    run = disturbed_run(bench, count)
    if run is None:
        bench.answer("contexts", "the run did not start", False)
        return
    found = ranks.gpus_of(run.ranks().values())
    run.end()
    if found is None:
        bench.answer("contexts", "nvidia-smi does not list these processes (another process namespace?)", None)
        return
    used = set().union(*found.values())
    is_well = all(len(gpus) == 1 for gpus in found.values()) and len(used) == min(count, len(bench.gpus))
    bench.answer("contexts", f"{sum(map(len, found.values()))} contexts of {count} ranks on {len(used)} GPU(s)",
                 is_well if len(bench.gpus) > 1 else None)


def seconds_until_named(run, pattern, limit_s):
    begin = time.monotonic()
    while time.monotonic() - begin < limit_s:
        has_ended = run.process.poll() is not None  # before the last look at what it said
        if re.search(pattern, run.errors()):
            return time.monotonic() - begin
        if has_ended:
            break
        time.sleep(0.005)
    return None


def ends_by_itself(run, limit_s):
    try:
        return run.process.wait(limit_s) != 0
    except subprocess.TimeoutExpired:
        return False


def disturb(bench, number, pattern, limit_s):
    """Seconds until the rank that got the signal was named, and whether everything ended; None: it did not start."""
    run = disturbed_run(bench, max(bench.counts[-1], 2))
    if run is None:
        return None
    victim = max(run.ranks())
    os.kill(run.ranks()[victim], number)
    named = seconds_until_named(run, pattern.format(victim), limit_s)
    has_ended = ends_by_itself(run, 120)
    run.end()
    return named, has_ended


def faults(bench):
    within, limit = bench.arguments.named_within, bench.arguments.step_timeout
    for _ in range(ATTEMPTS):
        death = disturb(bench, signal.SIGKILL, r"rank {0}: killed by signal 9|waits for rank {0}, which died", 120)
        if death and death[0] is not None and death[0] <= within:
            break
    bench.answer("a rank that is killed", said(death, f"; {within:g} s are promised"),
                 bool(death and death[0] is not None and death[0] <= within and death[1]))
    stop = disturb(bench, signal.SIGSTOP, r"waits for rank {0}, which has not come", limit + 120)
    bench.answer("a rank that stands still", said(stop, f"; the limit was {limit:g} s"),
                 bool(stop and stop[0] is not None and stop[1]))


def said(found, more):
    if found is None:
        return "the run did not start"
    named, has_ended = found
    text = "was not named" if named is None else f"named after {named:.2f} s{more}"
    return text if has_ended else text + "; the run did not end"


def not_shown(bench):
    """Of the whole, what this machine cannot show."""
    missing = []
    if not bench.gpus:
        missing.append("anything about GPUs: no GPU is visible (nvidia-smi), ranks were CPU processes")
    elif len(bench.gpus) == 1:
        missing.append("NCCL between GPUs, scaling, exposed communication: one GPU is visible; ranks shared it")
    elif len(bench.gpus) < 8:
        missing.append(f"more than {bench.counts[-1]} ranks on GPUs of their own: {len(bench.gpus)} GPUs are visible")
    if bench.arguments.quick:
        missing.append("bf16, and models of real sizes: --quick")
    missing.append("several hosts: this asks one")
    return missing + [f"{question}: {text}" for question, text, verdict in bench.answers if verdict == "not shown"]


def page(bench, sections):
    text = machine.head("Several GPUs", shlex.join(["bench/several_gpus.sh", *sys.argv[1:]]), peers="")
    gpus = ", ".join(sorted({name for name, _ in bench.gpus}))
    text = text.rstrip() + f"\n- GPUs: {f'{len(bench.gpus)} × {gpus}' if bench.gpus else 'none'}\n\n"
    for title, body in sections:
        text += f"## {title}\n\n{body}"
    text += "## Not shown here\n\n" + "".join(f"- {line}\n" for line in not_shown(bench)) + "\n"
    return text + "## Answers\n\n" + machine.table(["question", "answer", ""], bench.answers)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", help="folder of fullshard; default: build/cuda/bin or build/bin, built if missing")
    parser.add_argument("--output", default=os.path.join(machine.ROOT, "bench", "results"), help="folder of the page")
    parser.add_argument("--ranks", type=int, nargs="+", choices=[1, 2, 4, 8], help="default: 1, 2, 4, 8, as far as GPUs go")
    parser.add_argument("--steps", type=int, default=12, help="measured steps of a run, after the warm-up")
    parser.add_argument("--step-timeout", type=float, default=10, help="after which a rank that stands still is named")
    parser.add_argument("--named-within", type=float, default=2, help="seconds in which a death has to be named")
    parser.add_argument("--quick", action="store_true", help="fp32 only, and a tiny model in place of the real ones")
    parser.add_argument("--cpu", action="store_true", help="CPU ranks, although there are GPUs")
    return parser.parse_args()


def main():
    arguments = parsed()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, folder)
        sections = [("Bits", "Four steps of a tiny model, one global batch, `--deterministic`.\n\n" + bits(bench)),
                    ("Scaling, exposed communication, memory",
                     "FULL_SHARD, the same batch on every rank; medians of the steps after "
                     f"{WARM_UP}. Exposed is what a step's stream stood still for (`metrics.jsonl`).\n\n" + scaling(bench))]
        contexts(bench)
        faults(bench)
        text = page(bench, sections)
    os.makedirs(arguments.output, exist_ok=True)
    path = os.path.join(arguments.output, "several_gpus.md")
    with open(path, "w") as file:
        file.write(text)
    sys.stdout.write(text)
    print(f"written: {path}", file=sys.stderr)
    return 1 if any(verdict == "NO" for _, _, verdict in bench.answers) else 0


if __name__ == "__main__":
    sys.exit(main())
