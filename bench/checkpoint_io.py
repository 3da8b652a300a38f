# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of 110M parameters with AdamW on two ranks: ours, PyTorch's DCP, DeepSpeed's, beside the raw disk.

Called by bench/checkpoint_io.sh; writes bench/results/checkpoint_io.md. The scratch folder lies on the disk that is
measured. The peers need torch; DeepSpeed's lines are left out where it is not installed.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import machine

PEER = os.path.join(machine.ROOT, "bench", "peers", "checkpoint_io.py")


def ours(binaries, folder, ranks, *flags):
    """What bench_checkpoint_io prints, by name."""
    command = [os.path.join(binaries, "fullshard"), "launch", "--ranks", str(ranks), "--",
               os.path.join(binaries, "bench_checkpoint_io"), folder, *flags]
    run = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: failed: {run.stderr[-800:]}")
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {line["what"]: line for line in lines}


def drop(path):
    """Out of the page cache."""
    for place, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def to_fp32(binaries, source, out, reps, *flags):
    """Median seconds and, of a further run, the resident peak of `fullshard checkpoint to-fp32`."""
    command = [os.path.join(binaries, "fullshard"), "checkpoint", "to-fp32", source, out, *flags]
    seconds, peak = [], 0
    for run in range(reps + 1):
        shutil.rmtree(out, ignore_errors=True)
        drop(source)
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while run == reps and process.poll() is None:
            peak = max(peak, resident_peak(process.pid))
            time.sleep(0.002)
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(command)}: failed")
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[:reps]), peak


def resident_peak(pid):
    """As /proc has it: what wait4 tells is at least what this interpreter held when it started the program."""
    try:
        with open(f"/proc/{pid}/status") as lines:
            # Before the program is loaded the process is still this interpreter's copy.
            found = dict(line.split(":", 1) for line in lines if ":" in line)
        if found["Name"].strip() != "fullshard":
            return 0
        return int(found["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        return 0


def peers(folder, reps, only):
    """The peers' lines by name and ranks; the folder that DeepSpeed wrote stays."""
    out = os.path.join(folder, f"peers-{only}.jsonl")
    subprocess.run([sys.executable, PEER, os.path.join(folder, only), "--reps", str(reps), "--only", only, "--out", out,
                    "--keep"], check=True)
    with open(out) as lines:
        found = [json.loads(line) for line in lines]
    return {(line["what"], line["ranks"]): line for line in found}


def mib(number):
    return f"{number / 2**20:.0f}"


def rows_of(own, one_to_two, two_to_one, one_to_one, dcp):
    raw_write, raw_read = own["raw write with fsync"]["seconds"], own["raw read, cold"]["seconds"]
    rows = []

    def row(what, line, raw, peer=None):
        seconds = line["seconds"]
        rows.append([what, f"{seconds:.3f}", f"{line['bytes'] / seconds / 1e9:.2f}", f"{raw / seconds:.2f}" if raw else "",
                     f"{peer / seconds:.1f}" if peer else "", mib(line["rss_growth"])])

    save = dcp.get(("DCP save, FSDP2, model + AdamW", 2), {}).get("value")
    load = dcp.get(("DCP load, FSDP2, model + AdamW", 2), {}).get("value")
    reshard = dcp.get(("DCP load resharded to 1 rank(s), model + AdamW", 1), {}).get("value")
    row("raw write with fsync, both ranks", own["raw write with fsync"], raw_write)
    row("**save**", own["save"], raw_write, save)
    row("raw read, cold, both ranks", own["raw read, cold"], raw_read)
    row("**load, cold**", own["load, cold"], raw_read, load)
    row("load on 1 rank of what 1 saved", one_to_one["load, cold"], None)
    row("**load on 1 rank of what 2 saved**", two_to_one["load, cold"], None, reshard)
    row("**load on 2 ranks of what 1 saved**", one_to_two["load, cold"], raw_read)
    row("raw write with fsync, one rank", own["raw write with fsync, one rank"],
        own["raw write with fsync, one rank"]["seconds"])
    row("**full save** (safetensors, fp32)", own["full save (safetensors, fp32)"],
        own["raw write with fsync, one rank"]["seconds"])
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="a folder on the disk to measure")
    parser.add_argument("--reps", type=int, default=3)
    arguments = parser.parse_args()
    reps = ["--reps", str(arguments.reps)]
    text = machine.head("Checkpoints", f"bench/checkpoint_io.sh --reps {arguments.reps}")
    text += ("llama-110m with AdamW in fp32 (1.31 GB) on two ranks of one machine; medians. Saves end when all is on the "
             "disk (fsync), loads begin with the files out of the page cache. Raw: each rank writes or reads its share in "
             "blocks of 16 MiB. Memory is the growth of a rank's resident peak, the largest of the ranks.\n\n")
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        two, one = os.path.join(folder, "two"), os.path.join(folder, "one")
        os.makedirs(two), os.makedirs(one)
        own = ours(arguments.binaries, two, 2, *reps)
        two_to_one = ours(arguments.binaries, two, 1, "--load-only", *reps)
        fp32, fp32_peak = to_fp32(arguments.binaries, two, os.path.join(folder, "fp32"), arguments.reps)
        one_to_one = ours(arguments.binaries, one, 1, "--reps", "1", "--save-only")
        one_to_one = ours(arguments.binaries, one, 1, "--load-only", *reps)
        one_to_two = ours(arguments.binaries, one, 2, "--load-only", *reps)
        shutil.rmtree(one), shutil.rmtree(two)
        dcp = peers(folder, arguments.reps, "pytorch")
        text += machine.table(["", "s", "GB/s", "of raw", "times DCP's", "memory MiB"],
                              rows_of(own, one_to_two, two_to_one, one_to_one, dcp))
        plain, one_plain = own["load, cold"]["seconds"], one_to_one["load, cold"]["seconds"]
        text += (f"Resharding costs {two_to_one['load, cold']['seconds'] / one_plain:.2f} (2 to 1) and "
                 f"{one_to_two['load, cold']['seconds'] / plain:.2f} (1 to 2) of loading on as many ranks as saved.\n\n")
        text += async_text(own)
        deepspeed = peers(folder, arguments.reps, "deepspeed")
        text += fp32_text(arguments, folder, own, fp32, fp32_peak, deepspeed)
        text += "## The peers\n\n" + machine.table(
            ["", "ranks", "s", "GB/s", "memory over the model's fp32"],
            [[what, ranks, line["value"], line.get("gb_per_s", ""), line.get("rss_over_fp32", "")]
             for (what, ranks), line in {**dcp, **deepspeed}.items() if line["unit"] == "s" and line["value"]])
    machine.write("checkpoint_io.md", text)


def async_text(own):
    save = own["save"]["seconds"]
    held = own["asynchronous save, until it returns"]["seconds"]
    start, settle = (own[f"asynchronous save beside training, {part}"]["seconds"] for part in ("start", "settle"))
    alone, beside = own["step alone"]["seconds"], own["step beside an asynchronous save, all in all"]["seconds"]
    return ("## Asynchronous saving\n\n" + machine.table(
        ["", "s", "of a save"],
        [["`save()`: returns when everything is copied", f"{held:.3f}", f"{held / save:.2f}"],
         ["`start()`: returns", f"{start:.3f}", f"{start / save:.2f}"],
         ["`settle()` before the next optimizer step", f"{settle:.3f}", f"{settle / save:.2f}"],
         ["**training is held by start and settle**", f"{start + settle:.3f}", f"{(start + settle) / save:.2f}"]])
        + f"A step alone takes {alone:.3f} s, one with a whole save beside it {beside:.3f} s.\n\n")


def fp32_text(arguments, folder, own, seconds, peak, deepspeed):
    theirs = deepspeed.get(("DeepSpeed zero_to_fp32.py", 1), {})
    rows = [["`fullshard checkpoint to-fp32`, own checkpoint", f"{seconds:.2f}", mib(peak), ""]]
    source = os.path.join(folder, "deepspeed", "ds")
    if theirs.get("value"):
        found, found_peak = to_fp32(arguments.binaries, source, os.path.join(folder, "out"), arguments.reps)
        rows[0][3] = f"{theirs['value'] / seconds:.1f}"
        rows.append(["`fullshard checkpoint to-fp32`, DeepSpeed's", f"{found:.2f}", mib(found_peak),
                     f"{theirs['value'] / found:.1f}"])
        rows.append(["DeepSpeed zero_to_fp32.py (not flushed)", f"{theirs['value']:.2f}",
                     f"{mib(theirs['rss_growth_bytes'])} above its imports", "1.0"])
    return ("## fp32 weights out of a checkpoint\n\n"
            + machine.table(["", "s", "peak memory MiB", "times zero_to_fp32.py's speed"], rows))


if __name__ == "__main__":
    main()
