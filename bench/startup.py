# SPDX-License-Identifier: Apache-2.0
"""From starting a launcher to all ranks having met: `fullshard launch` beside torchrun; writes bench/results/startup.md.

Called by bench/startup.sh. Ours and torchrun take turns; one run of each before the first warms the page cache.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import machine


def met(command, ranks):
    """Seconds until the last of the ranks had met the others."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", BENCH_START=str(time.time()))
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                           env=environment)
    # Ranks write at the same time, so two of their objects may share a line.
    lines = [json.loads("{" + part[:part.index("}") + 1]) for part in found.stdout.split("{")[1:] if "seconds" in part]
    assert len(lines) == ranks, found.stdout
    return max(line["seconds"] for line in lines)


def answered(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--no-page", action="store_true", help="print only")
    arguments = parser.parse_args()
    ranks = str(arguments.ranks)
    launcher = os.path.join(arguments.binaries, "fullshard")
    commands = {
        "fullshard launch": [launcher, "launch", "--ranks", ranks, "--",
                             os.path.join(arguments.binaries, "bench_startup")],
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks,
                     os.path.join(machine.ROOT, "bench", "peers", "startup.py")]}
    times = {name: [] for name in commands}
    for repetition in range(arguments.repetitions + 1):
        for name, command in commands.items():
            seconds = met(command, arguments.ranks)
            if repetition > 0:
                times[name].append(seconds)
    helps = [answered([launcher, "--help"]) for _ in range(arguments.repetitions * 3)]
    peer = statistics.median(times["torchrun"])
    rows = [[name, f"{statistics.median(found):.3f}", f"{min(found):.3f} to {max(found):.3f}",
             f"{statistics.median(found) / peer:.3f}"] for name, found in times.items()]
    text = machine.head("Starting", f"bench/startup.sh --ranks {ranks} --repetitions {arguments.repetitions}")
    text += f"Seconds from starting the launcher to {ranks} ranks having met in a barrier.\n\n"
    text += machine.table(["launcher", "median", "range", "of torchrun"], rows)
    text += f"`fullshard --help`: {statistics.median(helps) * 1000:.1f} ms.\n"
    if arguments.no_page:
        sys.stdout.write(text)
    else:
        machine.write("startup.md", text)


if __name__ == "__main__":
    main()
