# SPDX-License-Identifier: Apache-2.0
"""Stands in for `fullshard train` on a machine whose GPUs the test plays: writes what a run writes and starts its ranks.

FAKE_SCENE: "well"; "bits differ" gives NO_SHARD other weights; "silent" does not name a rank that died.
"""
import json
import os
import re
import subprocess
import sys
import time

OUTPUT = sys.argv[sys.argv.index("--output") + 1]
SCENE = os.environ["FAKE_SCENE"]


def value(flag, default=None):
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else default


def write_records(ranks, steps):
    with open(os.path.join(OUTPUT, "metrics.jsonl"), "w") as lines:
        for step in range(steps):
            record = {"step": step + 1, "loss": 2.0, "step_s": 0.1 * (1.25 if ranks > 1 else 1), "exposed_comm_s": 0.02,
                      "device_peak_bytes": 8 * 2**30 // ranks, "host_peak_bytes": 2**30}
            lines.write(json.dumps(record) + "\n")


def write_weights():
    os.makedirs(os.path.join(OUTPUT, "model"))
    differs = SCENE == "bits differ" and value("--strategy") == "NO_SHARD"
    with open(os.path.join(OUTPUT, "model", "model.safetensors"), "w") as file:
        file.write("other" if differs else "weights")


def start_rank(rank):
    # Its command line is that of a rank, which waits to be disturbed.
    words = ["fullshard-core", "-c", "import time; time.sleep(600)", "train", "--output", OUTPUT]
    return subprocess.Popen(words, executable=sys.executable, env=dict(os.environ, RANK=str(rank)))


def state_of(process):
    with open(f"/proc/{process.pid}/stat") as stat:
        return re.sub(r".*\) ", "", stat.read()).split()[0]


def watch(processes):
    while True:
        for rank, process in enumerate(processes):
            if process.poll() is not None:
                return f"error: rank {rank}: killed by signal 9 (Killed)"
            if state_of(process) == "T":
                time.sleep(float(value("--step-timeout")))
                return f"error: rank 0: all_reduce waits for rank {rank}, which has not come for 1 s (step timeout)"
        time.sleep(0.01)


def main():
    ranks, steps = int(value("--ranks")), int(value("--steps"))
    log = os.environ["FAKE_LOG"]
    with open(log, "a") as lines:
        lines.write(" ".join(sys.argv[1:]) + "\n")
    os.makedirs(OUTPUT)
    if steps < 1000:
        write_records(ranks, steps)
        write_weights()
        return 0
    processes = [start_rank(rank) for rank in range(ranks)]
    write_records(ranks, 3)
    said = watch(processes)
    if SCENE != "silent":
        print(said, file=sys.stderr, flush=True)
    for process in processes:
        process.kill()
        process.wait()
    return 1


sys.exit(main())
