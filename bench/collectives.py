# SPDX-License-Identifier: Apache-2.0
"""Our collectives and gloo's on this machine, in turn; writes bench/results/collectives.md.

Called by bench/collectives.sh. For 2 and 4 ranks: gloo (peers/collectives.py), ours
(fullshard bench comm), and so on; each value is the median over the rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import machine

HERE = os.path.dirname(os.path.abspath(__file__))
OPERATIONS = {"all_gather": "all_gather_into_tensor", "all_gather in place": "all_gather_into_tensor",
              "reduce_scatter": "reduce_scatter_tensor", "all_reduce": "all_reduce"}


def gloo(ranks):
    """Milliseconds by (operation, bytes)."""
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as out:
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks),
                        os.path.join(HERE, "peers", "collectives.py"), "--out", out.name],
                       check=True, stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        lines = [json.loads(line) for line in out]
    return {(ours, line["bytes"]): line["value"] for line in lines
            for ours, theirs in OPERATIONS.items() if line["what"] == f"gloo {theirs}"}


def fullshard(binaries, ranks):
    """What bench comm found, its collectives by (operation, bytes)."""
    found = subprocess.run([os.path.join(binaries, "fullshard"), "bench", "comm", "--device", "cpu", "--ranks", str(ranks), "--json"],
                           check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(found.stdout)
    return result | {"collectives": {(line["name"], line["bytes"]): line for line in result["collectives"]}}


def name_of_size(size):
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def section(ranks, ours, theirs):
    """Markdown for one number of ranks, from the rounds of each side."""
    def middle(key, field):
        return statistics.median(one["collectives"][key][field] for one in ours)

    alone, together = (statistics.median(one["copy_gb_per_s"][which] for one in ours) for which in ("one_rank", "all_ranks"))
    rows = []
    for key in theirs[0]:
        operation, size = key
        mine, gloo_ms = middle(key, "seconds") * 1e3, statistics.median(one[key] for one in theirs)
        of_copy = middle(key, "of_copy")
        rows.append([operation, name_of_size(size), f"{mine:.3f}", f"{gloo_ms:.3f}",
                     f"{gloo_ms / mine:.1f}", f"{of_copy * together:.1f}", f"{of_copy:.2f}"])
    return (f"## {ranks} ranks, backend {ours[0]['backend']}\n\n"
            f"Copy (memcpy of 256 MiB, read + written): {alone:.1f} GB/s by one rank, "
            f"{together:.1f} GB/s by all at once.\n\n" +
            machine.table(["operation", "full size", "ms", "gloo ms", "gloo / ours",
                           "GB/s read + written, all ranks", "of their copies"], rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    arguments = parser.parse_args()
    text = machine.head("Collectives between ranks of one host",
                        f"bench/collectives.sh --rounds {arguments.rounds}")
    text += ("A size is that of the full fp32 tensor on each rank; a time is the slowest rank's, the "
             "median over repetitions and rounds. Buffers come from `allocate()`. \"In place\" is how "
             "the engine gathers: a rank's own row lies in the full tensor already (gloo's line is "
             "the same in both).\n\n")
    for ranks in arguments.ranks:
        theirs, ours = [], []
        for _ in range(arguments.rounds):
            theirs.append(gloo(ranks))
            ours.append(fullshard(arguments.binaries, ranks))
        text += section(ranks, ours, theirs)
    machine.write("collectives.md", text)


if __name__ == "__main__":
    main()
