# SPDX-License-Identifier: Apache-2.0
"""Where and of what a result was measured: the head of every page under bench/results/."""
import os
import platform
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output_of(*command):
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else ""


def commit():
    """FULLSHARD_COMMIT says which where there is a copy of the tree and no repository."""
    if "FULLSHARD_COMMIT" in os.environ:
        return os.environ["FULLSHARD_COMMIT"]
    changed = " with uncommitted changes" if output_of("git", "status", "--porcelain") else ""
    return (output_of("git", "rev-parse", "--short", "HEAD") or "none") + changed


def processor():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory_gib():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def head(title, command, peers=None):
    """Markdown: the title, then machine, commit and command; the peers are torch unless told, none
    where they are empty."""
    if peers is None:
        import torch
        peers = f"torch {torch.__version__}"
    return (f"# {title}\n\n"
            f"- machine: {processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB, "
            f"{platform.system()} {platform.machine()}\n"
            f"- commit: {commit()}\n- command: `{command}`\n"
            + (f"- peers: {peers}\n" if peers else "") + "\n")


def table(columns, rows):
    lines = [columns, ["---"] * len(columns)] + rows
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines) + "\n"


def write(name, text):
    path = os.path.join(ROOT, "bench", "results", name)
    with open(path, "w") as page:
        page.write(text)
    sys.stdout.write(text)
    print(f"written: {os.path.relpath(path, ROOT)}", file=sys.stderr)
