# SPDX-License-Identifier: Apache-2.0
"""What the scripts that measure steps on one GPU share: a run of ours, and a line of a peer."""
import json
import os
import statistics
import subprocess
import sys


def told(command, folder=None):
    """The standard output of a command; None, with the end of its errors shown, where it failed."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return done.stdout
    print(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}", file=sys.stderr, flush=True)
    return None


def train(binaries, words, folder):
    """The records of `fullshard train` on one rank of the GPU, in a folder; None where it failed."""
    command = [os.path.join(os.path.abspath(binaries), "fullshard"), "train", "--ranks", "1", "--device", "cuda", "--clip", "1",
               "--output", "run", "--overwrite", "--no-save-model", "--quiet", *words]
    if told(command, folder) is None:
        return None
    with open(os.path.join(folder, "run", "metrics.jsonl")) as lines:
        return [json.loads(line) for line in lines]


def step_of(records, warm_up):
    """Seconds, the median after the warm-up, and the peak in GiB; None for a run that failed."""
    if records is None:
        return None
    return (statistics.median(record["step_s"] for record in records[warm_up:]),
            max(record["device_peak_bytes"] for record in records) / 2**30)


def peer_step(command):
    """The same of a peer, which ends with a line of JSON."""
    text = told([sys.executable, *command])
    if text is None:
        return None
    found = json.loads(text.strip().splitlines()[-1])
    return found["step_s"], found["peak_gib"]
