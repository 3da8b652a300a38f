# SPDX-License-Identifier: Apache-2.0
"""AdamW on the CPU beside the bandwidth of a copy and beside the peers; writes bench/results/cpu_adamw.md.

Called by bench/cpu_adamw.sh. Ours and the peers' take turns for one and for two threads; PEERS_PYTHON names a
Python that has DeepSpeed, if that is another one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import machine

PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}  # torch then asks for huge pages too
PEERS = ("torch AdamW, fused", "DeepSpeedCPUAdam")
EVERYTHING = "norm of stored gradients, unscale, clip, update, cast"
READ, IN_PLACE = "roof: the four arrays are read", "roof: three are read and written, one is read"


def lines_of(command, threads, more={}):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), DS_ACCELERATOR="cpu", **more)
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


def with_huge_pages(lines):
    return [dict(line, what=line["what"] + ", huge pages") for line in lines if line["what"] in PEERS]


def medians(rounds):
    """One line for each thing measured: the median over the rounds."""
    merged = []
    for same in zip(*rounds):
        line = dict(same[0])
        for key in ("s_per_1e9", "gb_per_s"):
            if key in line:
                line[key] = statistics.median(one[key] for one in same)
        merged.append(line)
    return merged


def section(threads, ours, peers):
    copy = ours[0]["gb_per_s"]
    rows, update = [], ours[1]["s_per_1e9"]
    seconds_of = {}
    for line in ours[1:] + peers:
        if "why_not" in line:
            rows.append([line["what"], "-", "-", line["why_not"]])
            continue
        seconds, size = line["s_per_1e9"], line.get("bytes", 28)
        seconds_of[line["what"]] = seconds
        rows.append([line["what"], f"{seconds:.3f}", f"{size:.0f}", f"{size / seconds / copy:.2f}",
                     f"{seconds / update:.2f}"])
    text = (f"## {threads} thread{'s' if threads > 1 else ''}, copy {copy:.1f} GB/s\n\n" +
            machine.table(["what", "s per 1e9 parameters", "bytes", "of the copy's bandwidth", "of the update"], rows))
    theirs = [f"{seconds_of[name] / update:.2f} times {name}" for name in PEERS if name in seconds_of]
    return (text + f"- The update is {' and '.join(theirs)} (required: 1.7 times both). It takes "
            f"{update / seconds_of[READ]:.2f} of the time in which its four arrays can be read at all, and "
            f"{update / seconds_of[IN_PLACE]:.2f} of a loop that reads and writes them without arithmetic; 1.7 times the "
            f"faster peer would be {min(seconds_of[name] for name in PEERS if name in seconds_of) / 1.7 / seconds_of[READ]:.2f} "
            f"of the reading alone.\n"
            f"- Norm, unscale, clip, update and cast together: {seconds_of[EVERYTHING] / update:.2f} of the update "
            f"(required: 1.25). Reading the gradients once more is 4 bytes on top of 16, the copy in bf16 fetches 2 more "
            f"before it writes them: 22 / 16 = 1.38 where reading is the limit.\n\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-page", action="store_true", help="print only")
    arguments = parser.parse_args()
    numel = ["--parameters", str(arguments.parameters)]
    peer = [os.environ.get("PEERS_PYTHON", sys.executable),
            os.path.join(machine.ROOT, "bench", "peers", "cpu_adamw.py"), *numel]
    text = machine.head("AdamW on the CPU", f"bench/cpu_adamw.sh --parameters {arguments.parameters} "
                        f"--rounds {arguments.rounds}")
    text += ("fp32 parameters, gradients and moments, over the bandwidth of memcpy (bytes read and written) with as "
             "many threads in the same run. Ours lie in the memory that the engine gives them, which asks for huge "
             "pages; the peers' as torch allocates, and once more with huge pages (`THP_MEM_ALLOC_ENABLE=1`). Medians.\n\n")
    for threads in (1, 2):
        count = ["--threads", str(threads)]
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            ours.append(lines_of([os.path.join(arguments.binaries, "bench_cpu_adamw"), *numel, *count], threads))
            theirs.append(lines_of(peer + count, threads))
            theirs[-1] += with_huge_pages(lines_of(peer + count, threads, PAGES))
        text += section(threads, medians(ours), medians(theirs))
    if arguments.no_page:
        sys.stdout.write(text)
    else:
        machine.write("cpu_adamw.md", text)


if __name__ == "__main__":
    main()
