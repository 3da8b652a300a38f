# SPDX-License-Identifier: Apache-2.0
"""A row of the sweep: commands, and what of their results is the same on a GPU as on the CPU."""
import dataclasses
import json
import math
import os
import shutil
import subprocess
import time

# Largest relative difference of a loss, by the precision of products.
TOLERANCES = {"no": 2e-4, "bf16": 2e-2, "fp16": 5e-3, "fp8": 6e-2}
SMALLEST = 0.05  # what is smaller is compared as if it were this: losses of what has been learnt
LIMIT_S = 240
TAKE_DEVICE = ("train", "eval", "generate", "compare", "tune", "bench step", "bench optimizer")


@dataclasses.dataclass
class Row:
    name: str
    commands: list                 # words of each; the last one is judged
    sees: str = "losses"           # or tokens, numbers, nothing: what is compared
    precision: str = "no"
    is_quick: bool = False
    differs_on_cpu: tuple = ()     # flags with other values there: (("--precision", "bf16"),)
    has_cpu: bool = True           # whether the CPU is asked at all


@dataclasses.dataclass
class Outcome:
    row: Row
    problem: str                   # empty: right
    seconds: float


def placed(words, device, others):
    """The words of a command on one device; `{disk}` in them is left for the folder."""
    words = list(words)
    for flag, value in others:
        if flag in words:
            words[words.index(flag) + 1] = value
    takes_device = " ".join(words[:2]).startswith(TAKE_DEVICE)
    return [*words, "--device", device] if takes_device and "--device" not in words else words


def run_on(row, device, binary, models, folder):
    """The last command's standard output, in a folder of its own; raises with the end of its errors."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    os.makedirs(os.path.join(folder, "disk"))
    for entry in os.scandir(models):
        os.symlink(entry.path, os.path.join(folder, entry.name))
    output = ""
    for words in row.commands:
        words = placed(words, device, row.differs_on_cpu if device == "cpu" else ())
        words = [word.replace("{disk}", os.path.join(folder, "disk")) for word in words]
        environment = dict(os.environ, OMP_NUM_THREADS="2")
        done = subprocess.run([binary, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT_S)
        if done.returncode != 0:
            said = [line for line in done.stderr.strip().splitlines() if line.strip()]
            raise RuntimeError(f"{device}: {words[0]} ended with {done.returncode}: {(said or ['nothing said'])[-1][:300]}")
        output = done.stdout
    return output


def losses_in(folder):
    """Of all steps, and the norm of the first one's gradients: later ones are of weights that rounding has led apart."""
    with open(os.path.join(folder, "run", "metrics.jsonl")) as lines:
        records = [record for record in map(json.loads, lines) if "loss" in record]
    return [record["loss"] for record in records] + [record["grad_norm"] for record in records[:1] if record.get("grad_norm")]


def tokens_in(output):
    return [record["tokens"] for record in map(json.loads, output.splitlines()) if "tokens" in record]


def numbers_in(value, path=""):
    if isinstance(value, dict):
        return {key: number for name, inner in value.items() for key, number in numbers_in(inner, f"{path}.{name}").items()}
    return {path: value} if isinstance(value, float) and not path.endswith(("_s", "seconds", "per_s")) else {}


def results_of(row, output, folder):
    if row.sees == "losses":
        return losses_in(folder)
    if row.sees == "tokens":
        return tokens_in(output)
    return list(numbers_in(json.loads(output.strip().splitlines()[-1])).values()) if row.sees == "numbers" else []


def difference(found, wanted, tolerance):
    """In words; empty where there is none that matters."""
    if len(found) != len(wanted):
        return f"{len(found)} results, the CPU has {len(wanted)}"
    for place, (own, exact) in enumerate(zip(found, wanted)):
        if isinstance(own, str):
            return f"results are {own}"  # NaN as JSON has it
        if isinstance(own, list):
            if own != exact:
                first = next((i for i, (a, b) in enumerate(zip(own, exact)) if a != b), min(len(own), len(exact)))
                return f"sequence {place} is another from token {first} on: {own[first:first + 4]}, the CPU has {exact[first:first + 4]}"
        elif not math.isfinite(own) or abs(own - exact) > tolerance * max(abs(exact), SMALLEST):
            return f"result {place} is {own:.6g}, the CPU has {exact:.6g}; allowed is {tolerance:g} of that"
    return ""


def judge(row, binary, models, folder):
    begin = time.monotonic()
    try:
        on_gpu = os.path.join(folder, "cuda")
        found = results_of(row, run_on(row, "cuda", binary, models, on_gpu), on_gpu)
        problem = "" if found or row.sees == "nothing" else "no results"
        if row.has_cpu and not problem:
            on_cpu = os.path.join(folder, "cpu")
            wanted = results_of(row, run_on(row, "cpu", binary, models, on_cpu), on_cpu)
            problem = difference(found, wanted, TOLERANCES[row.precision])
    except subprocess.TimeoutExpired:
        problem = f"no end within {LIMIT_S} s"
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        problem = str(error)
    if not problem:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(row, problem, time.monotonic() - begin)
