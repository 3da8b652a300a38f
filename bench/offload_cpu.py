# SPDX-License-Identifier: Apache-2.0
"""`fullshard train` on CPU ranks with optimizer states on a disk, beside the same in memory and beside what `fullshard bench disk` finds
for that disk; writes bench/results/offload_cpu.md.

Called by bench/offload.sh --cpu. A round is a run in memory, the raw speed of the disk, and a run on the disk, one after the other, so that
they meet the same machine; there are several rounds. Seconds are per step, of all steps after the warm-up.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import machine

WARM_UP = 2


def random_tokens(folder):
    import random
    path = os.path.join(folder, "tokens.bin")
    draw = random.Random(0)
    with open(path, "wb") as file:
        for _ in range(200_000):
            file.write(draw.randrange(32000).to_bytes(2, "little"))
    return path


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def train(arguments, tokens, folder, words):
    output = os.path.join(folder, "run")
    run([os.path.join(arguments.binaries, "fullshard"), "train", "--ranks", str(arguments.ranks), "--device", "cpu", "--model",
         arguments.model, "--data", tokens, "--sequence-length", str(arguments.length), "--micro-batch", "1", "--steps",
         str(arguments.steps + WARM_UP), "--lr", "1e-4", "--schedule", "constant", "--clip", "1", "--order", "sequential", "--output", output,
         "--overwrite", "--no-save-model", "--quiet", "--json", "--strategy", "FULL_SHARD", *words])
    with open(os.path.join(output, "metrics.jsonl")) as lines:
        records = [json.loads(line) for line in lines]
    with open(os.path.join(output, "run.json")) as file:
        disk = json.load(file).get("disk", {})
    steps = len(records)
    return {"step_s": statistics.median(record["step_s"] for record in records[WARM_UP:]), "loss": records[-1]["loss"],
            "read": disk.get("bytes_read", 0) / steps, "written": disk.get("bytes_written", 0) / steps,
            "read_wait_s": disk.get("read_wait_s", 0) / steps, "write_wait_s": disk.get("write_wait_s", 0) / steps,
            "per_day": disk.get("bytes_written_per_day", 0)}


def raw_speed(arguments):
    found = json.loads(run([os.path.join(arguments.binaries, "fullshard"), "bench", "disk", arguments.disk, "--quick", "--json", "--size",
                            arguments.size]))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--disk", required=True, help="a folder on the disk")
    parser.add_argument("--model", default="llama-110m")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", default="1GiB", help="of the file that the raw speed is measured with")
    arguments = parser.parse_args()
    words = " ".join(sys.argv[1:])
    text = machine.head("Optimizer states on a disk, CPU ranks", f"bench/offload.sh {words}".strip(), peers="").rstrip() + "\n\n"
    text += (f"{arguments.model}, fp32, {arguments.ranks} ranks, FULL_SHARD, AdamW, one sequence of {arguments.length} tokens per rank. "
             "*raw* is the time that the bytes of a step take at the speeds `fullshard bench disk` finds, reading and writing one after the "
             "other; *of raw* is that time over what the disk adds to a step. The waits are those of the rank that waited longest.\n\n")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tokens = random_tokens(folder)
        for _ in range(arguments.rounds):
            near = train(arguments, tokens, folder, [])
            raw = raw_speed(arguments)
            far = train(arguments, tokens, folder, ["--offload", f"optimizer:{arguments.disk}"])
            assert near["loss"] == far["loss"], (near, far)
            raw_s = far["read"] / (raw["read_gb_per_s"] * 1e9) + far["written"] / (raw["write_gb_per_s"] * 1e9)
            added = far["step_s"] - near["step_s"]
            rows.append([f"{raw['read_gb_per_s']:.2f}, {raw['write_gb_per_s']:.2f}", f"{near['step_s']:.2f}", f"{far['step_s']:.2f}",
                         f"{far['read'] / 1e9:.2f}, {far['written'] / 1e9:.2f}", f"{raw_s:.2f}", f"{far['read_wait_s']:.2f}",
                         f"{far['write_wait_s']:.2f}", f"{raw_s / added:.2f}" if added > 0 else "all hidden",
                         f"{far['per_day'] / 1e12:.1f}"])
            print(rows[-1], file=sys.stderr, flush=True)
    text += machine.table(["raw GB/s: read, written", "s/step in memory", "s/step on disk", "GB per step: read, written", "raw s", "waited for reads s",
                           "for writes s", "of raw", "TB written a day"], rows)
    machine.write("offload_cpu.md", text)


if __name__ == "__main__":
    main()
