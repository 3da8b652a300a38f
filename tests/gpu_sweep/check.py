# SPDX-License-Identifier: Apache-2.0
"""Runs parts of the check of a GPU and writes what was found; called by scripts/gpu_check.sh.

Every row is printed as it ends, and kept in FOLDER/found.json: a part that was interrupted counts for what it did, and parts that run
at one commit become one record.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

import lines
import models
import row as rows_of
import rows

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import machine  # noqa: E402

GPU_TESTS = ["ops_cuda_test", "optim_cuda_test", "models_cuda_test", "training_cuda_test"]
# Under the checkers a kernel takes a hundred times as long: a case of each, products of libraries and what only compares left out.
OWN_KERNELS = ("DeviceDecoding.GivesARowTheSameBits*:DeviceDecoding.AttendsToEachRow*:DeviceNorm.TakesStrided*:DeviceNorm.FillsItsSinks*:"
               "DeviceColumnSums.OfRowsThatEnd*:DeviceRotary.*:DeviceEmbedding.*:DeviceDropout.GivesGradients*:DeviceCrossEntropy.IsZeroWithoutLabels*:"
               "DeviceSharedRows.LeaveTheGradient*:DeviceActivation.*")
SANITIZED = {"memcheck": ("ops_cuda_test", OWN_KERNELS), "racecheck": ("ops_cuda_test", OWN_KERNELS), "synccheck": ("ops_cuda_test", OWN_KERNELS),
             "memcheck of updates": ("optim_cuda_test", "CudaAdamW.*:CudaNorm.*")}
SANITIZER_LIMIT_S = 150


class Found:
    """What has been found so far, of one commit."""

    def __init__(self, path):
        self.path = path
        self.parts = {}
        if os.path.exists(path):
            with open(path) as file:
                kept = json.load(file)
            if kept["commit"] == machine.commit():
                self.parts = kept["parts"]

    def add(self, part, name, problem, **figures):
        self.parts.setdefault(part, {})[name] = {"problem": problem, **figures}
        with open(self.path + ".new", "w") as file:
            json.dump({"commit": machine.commit(), "parts": self.parts}, file)
        os.replace(self.path + ".new", self.path)
        told = "  ".join(f"{key} {value}" for key, value in figures.items())
        print(f"{'WRONG' if problem else 'right'}  {part}: {name}  {told}{'  ' + problem if problem else ''}", flush=True)

    def problems(self):
        return sum(bool(one["problem"]) for part in self.parts.values() for one in part.values())


def chosen(named, only, quick):
    return [one for one in named if re.search(only, one.name) and (one.is_quick or not quick)]


def families_of(wanted):
    """Whose trained models the rows name."""
    words = {word.split("/")[0] for one in wanted for command in one.commands for word in command}
    return [family for family in models.CONFIGS if f"{family}-trained" in words]


def prepare(binary, folder, families):
    """Data, configurations and trained models, all on the CPU."""
    os.makedirs(folder, exist_ok=True)
    models.make_data(folder)
    models.make_configs(folder)

    def train(family):
        words = [*models.training_of(family), "--overwrite"]
        environment = dict(os.environ, OMP_NUM_THREADS="2")
        done = subprocess.run([binary, *words], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: {done.stderr[-500:]}")

    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        list(pool.map(train, families))


def sweep(arguments, found):
    folder = os.path.join(arguments.folder, "sweep")
    shutil.rmtree(folder, ignore_errors=True)
    binary = os.path.join(arguments.binaries, "fullshard")
    wanted = chosen(rows.all_rows(), arguments.only, arguments.quick)
    if not wanted:
        return
    prepare(binary, os.path.join(folder, "models"), families_of(wanted))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        ended = [pool.submit(rows_of.judge, one, binary, os.path.join(folder, "models"), os.path.join(folder, str(place)))
                 for place, one in enumerate(wanted)]
        for outcome in concurrent.futures.as_completed(ended):
            found.add("sweep", outcome.result().row.name, outcome.result().problem)


def tests(arguments, found):
    """Each program's suites; what failed is named."""
    for program in GPU_TESTS:
        if not re.search(arguments.only, program):
            continue
        begin = time.monotonic()
        report = os.path.join(arguments.folder, f"{program}.json")
        command = [os.path.join(arguments.binaries, program), "--gtest_brief=1", f"--gtest_output=json:{report}"]
        done = subprocess.run(command, capture_output=True, text=True)
        failed = re.findall(r"\[  FAILED  \] (\S+?)(?:,| \()", done.stdout)
        problem = "" if done.returncode == 0 else f"ended with {done.returncode}: {' '.join(dict.fromkeys(failed))[:600] or done.stderr[-300:]}"
        if problem:
            print(done.stdout[-3000:], flush=True)
        found.add("tests", program, problem, seconds=round(time.monotonic() - begin))


def measured_until_right(measure, verdict):
    """The least of some measurements, how many they were, and what is wrong with it; a single one where nothing fell."""
    least = None
    for count in range(1, lines.MEASUREMENTS + 1):
        figures = measure()
        least = figures if least is None else tuple(map(min, least, figures))
        if not verdict(*least):
            break
    return least, count, verdict(*least)


def judge_line(line, binary, folder):
    (ms, gib), count, problem = measured_until_right(lambda: lines.measure(line, binary, folder), lambda ms, gib: lines.verdict(line, ms, gib))
    return problem, {"ms": round(ms, 2), "recorded_ms": line.recorded_ms, "gib": round(gib, 2), "recorded_gib": line.recorded_gib, "measured": count}


def judge_start(start, binary, folder):
    (seconds,), count, problem = measured_until_right(lambda: (lines.measure_start(start, binary, folder),),
                                                      lambda seconds: lines.verdict_of_start(start, seconds))
    return problem, {"seconds": round(seconds, 1), "within_s": start.within_s, "measured": count}


def speed(arguments, found):
    folder = os.path.join(arguments.folder, "lines")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    lines.make_files(folder)
    binary = os.path.join(arguments.binaries, "fullshard")
    for part, judge, table in [("lines", judge_line, lines.LINES), ("starts", judge_start, lines.STARTS)]:
        for one in chosen(table, arguments.only, arguments.quick):
            try:
                problem, figures = judge(one, binary, folder)
                found.add(part, one.name, problem, **figures)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                found.add(part, one.name, str(error)[-300:])


def sanitizer(arguments, found):
    def run(item):
        name, (program, chosen_tests) = item
        command = ["compute-sanitizer", "--tool", name.split()[0], "--error-exitcode", "9", os.path.join(arguments.binaries, program),
                   "--gtest_brief=1", f"--gtest_filter={chosen_tests}"]
        environment = dict(os.environ, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SANITIZER_LIMIT_S)
        except subprocess.TimeoutExpired:
            return name, f"no end within {SANITIZER_LIMIT_S} s"
        said = re.findall(r"========= (.*)", done.stdout)
        return name, "" if done.returncode == 0 else f"ended with {done.returncode}: {' / '.join(said[:3]) or done.stdout[-300:]}"

    with concurrent.futures.ThreadPoolExecutor(len(SANITIZED)) as pool:
        for name, problem in pool.map(run, [item for item in SANITIZED.items() if re.search(arguments.only, item[0])]):
            found.add("sanitizer", name, problem)


# Parts whose rows have figures: the title, and what a figure is called.
FIGURES = [("lines", "Lines", {"ms": "ms/step", "recorded_ms": "recorded", "gib": "GiB", "recorded_gib": "recorded", "measured": "measured"}),
           ("starts", "Starts: a run of one step, without the step", {"seconds": "seconds", "within_s": "at most", "measured": "measured"}),
           ("tests", "Programs of tests", {"seconds": "seconds"})]


def record(found, command):
    import torch
    text = machine.head("What was checked on a GPU", command).rstrip() + "\n" + f"- GPU: {torch.cuda.get_device_name()}\n\n"
    text += ("Rows of [tests/gpu_sweep](../../tests/gpu_sweep/README.md), each beside the same command on the CPU; programs of tests; lines beside what was "
             "recorded; NVIDIA's checkers over own kernels. A fall is 3 % of speed or 1 % of memory; a line that fell is measured "
             f"again, {lines.MEASUREMENTS} times at most, and the least counts.\n\n")
    text += machine.table(["part", "rows", "right", "wrong"],
                          [[part, len(all_of), sum(not one["problem"] for one in all_of.values()), sum(bool(one["problem"]) for one in all_of.values())]
                           for part, all_of in found.parts.items()])
    wrong = [[part, name, one["problem"].replace("|", "/")] for part, all_of in found.parts.items() for name, one in all_of.items() if one["problem"]]
    if wrong:
        text += "## Wrong\n\n" + machine.table(["part", "row", "what"], wrong)
    for part, title, columns in FIGURES:
        figures = [[name, *(one.get(key, "-") for key in columns)] for name, one in found.parts.get(part, {}).items()]
        if figures:
            text += f"## {title}\n\n" + machine.table([part[:-1], *columns.values()], figures)
    names = sorted(name for name, one in found.parts.get("sweep", {}).items() if not one["problem"])
    if names:
        text += "## Rows that were right\n\n" + "".join(f"- {name}\n" for name in names)
    return text


PARTS = {"tests": tests, "sweep": sweep, "lines": speed, "sanitizer": sanitizer}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--binaries", default=os.path.join(ROOT, "build", "cuda", "bin"))
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "gpu_check"))
    parser.add_argument("--only", default="", help="rows whose name has this regular expression")
    parser.add_argument("--quick", action="store_true", help="rows and lines that stand for the others")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="rows of the sweep at a time")
    parser.add_argument("--command", default="scripts/gpu_check.sh", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.binaries, arguments.folder = os.path.abspath(arguments.binaries), os.path.abspath(arguments.folder)
    os.makedirs(arguments.folder, exist_ok=True)
    found = Found(os.path.join(arguments.folder, "found.json"))
    for part in arguments.parts:
        begin = time.monotonic()
        PARTS[part](arguments, found)
        print(f"{part}: {time.monotonic() - begin:.0f} s", flush=True)
        if not arguments.only:
            with open(os.path.join(ROOT, "bench", "results", "gpu_check.md"), "w") as page:
                page.write(record(found, arguments.command))
    print(f"{found.problems()} wrong")
    return 1 if found.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
