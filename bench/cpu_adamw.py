"""AdamW on the CPU beside the bandwidth of a copy and beside the peers; writes bench/results/cpu_adamw.md.

Called by bench/cpu_adamw.sh. Ours and the peers' take turns for one and for two threads; PEERS_PYTHON names a
Python that has DeepSpeed, if that is another one.
"""
import argparse
import json
import os
import subprocess
import sys

import machine


def lines_of(command, threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), DS_ACCELERATOR="cpu")
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


def section(threads, ours, peers):
    copy = ours[0]["gb_per_s"]
    rows, update = [], ours[1]["s_per_1e9"]
    for line in ours[1:] + peers:
        if "why_not" in line:
            rows.append([line["what"], "-", "-", line["why_not"]])
            continue
        seconds = line["s_per_1e9"]
        rows.append([line["what"], f"{seconds:.3f}", f"{28 / seconds / copy:.2f}", f"{seconds / update:.2f}"])
    return (f"## {threads} thread{'s' if threads > 1 else ''}, copy {copy:.1f} GB/s\n\n" +
            machine.table(["what", "s per 1e9 parameters", "of the copy's bandwidth", "of the update"], rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--no-page", action="store_true", help="print only")
    arguments = parser.parse_args()
    numel = ["--parameters", str(arguments.parameters)]
    peer = [os.environ.get("PEERS_PYTHON", sys.executable),
            os.path.join(machine.ROOT, "bench", "peers", "cpu_adamw.py"), *numel]
    text = machine.head("AdamW on the CPU", f"bench/cpu_adamw.sh --parameters {arguments.parameters}")
    text += ("fp32 parameters, gradients and moments: 28 bytes per parameter, over the bandwidth of memcpy (bytes "
             "read and written) with as many threads in the same run. Medians.\n\n")
    for threads in (1, 2):
        count = ["--threads", str(threads)]
        ours = lines_of([os.path.join(arguments.binaries, "bench_cpu_adamw"), *numel, *count], threads)
        text += section(threads, ours, lines_of(peer + count, threads))
    if arguments.no_page:
        sys.stdout.write(text)
    else:
        machine.write("cpu_adamw.md", text)


if __name__ == "__main__":
    main()
