# SPDX-License-Identifier: Apache-2.0
"""Stands in for nvidia-smi: FAKE_GPUS of them, and contexts of the processes that look like ranks, each on its own; with
FAKE_CONTEXTS=stray all of them also on the first."""
import os
import sys

if sys.argv[1].startswith("--query-gpu"):
    for gpu in range(int(os.environ["FAKE_GPUS"])):
        print(f"NVIDIA H200, GPU-{gpu}")
else:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            variables = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        if words[0] != b"fullshard-core":
            continue
        rank = next(int(word[5:]) for word in variables if word.startswith(b"RANK="))
        print(f"{pid}, GPU-{rank}")
        if os.environ.get("FAKE_CONTEXTS") == "stray" and rank > 0:
            print(f"{pid}, GPU-0")
