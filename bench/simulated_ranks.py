# SPDX-License-Identifier: Apache-2.0
"""Simulations beside runs on CPU ranks of this machine; writes bench/results/simulated_ranks.md.

Called by bench/simulated_ranks.sh, as root: it makes two network namespaces whose link `tc` limits. Two constants are
fitted, on two runs of one rank: the rates that products and attention sustain on all cores together. Ranks share the
cores, the memory and what the constants say; shared memory and links are measured.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import machine

SPACES, LINK, ADDRESSES = ("fullshard-sim-a", "fullshard-sim-b"), "fullsim0", ("10.213.78.1", "10.213.78.2")
FITTED = (("llama-15m", 8, 256), ("llama-15m", 1, 2048))
ALONE = [("llama-15m", 8, 256, "FULL_SHARD"), ("llama-15m", 8, 256, "NO_SHARD"), ("llama-110m", 2, 256, "FULL_SHARD"),
         ("gpt2-124m", 2, 256, "FULL_SHARD")]
APART = [("llama-15m", 8, 256, "FULL_SHARD"), ("llama-15m", 8, 256, "HYBRID_SHARD"), ("llama-110m", 2, 256, "FULL_SHARD"),
         ("llama-110m", 2, 256, "HYBRID_SHARD")]


def shell(command, check=True):
    return subprocess.run(command, shell=True, check=check, capture_output=True, text=True)


class TwoHosts:
    """Two namespaces with a link that carries so many Gb/s each way."""

    def __init__(self, gigabits):
        self.remove()
        a, b = SPACES
        shell(f"ip netns add {a} && ip netns add {b} && ip link add {LINK} netns {a} type veth peer name {LINK} netns {b}")
        for space, address in zip(SPACES, ADDRESSES):
            shell(f"ip -n {space} addr add {address}/24 dev {LINK} && ip -n {space} link set {LINK} up && ip -n {space} link set lo up")
            shell(f"tc -n {space} qdisc add dev {LINK} root tbf rate {gigabits}gbit burst {max(64, 64 * gigabits)}kb latency 50ms")

    def remove(self):
        for space in SPACES:
            shell(f"ip netns del {space}", check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Bench:
    def __init__(self, program, folder, steps):
        self.program, self.folder, self.steps = program, folder, steps
        drawn = random.Random(0)
        with open(os.path.join(folder, "tokens.bin"), "wb") as file:
            file.write(b"".join(drawn.randrange(32000).to_bytes(2, "little") for _ in range(400_000)))

    def flags(self, model, batch, length, strategy):
        return f"--model {model} --micro-batch {batch} --sequence-length {length} --strategy {strategy}"

    def seconds_of_run(self):
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as file:
            return statistics.median(json.loads(line)["step_s"] for line in list(file)[2:])

    def train(self, run, ranks):
        shell(f"{self.program} train {self.flags(*run)} --device cpu --ranks {ranks} --data {self.folder}/tokens.bin "
              f"--steps {self.steps} --output {self.folder}/run --overwrite --no-save-model --quiet")
        return self.seconds_of_run()

    def train_apart(self, run, ranks_each):
        command = lambda node: (
            f"ip netns exec {SPACES[node]} env FULLSHARD_JOB_SECRET=bench {self.program} train {self.flags(*run)} --device cpu --ranks {ranks_each} "
            f"--nnodes 2 --node-rank {node} --master-addr {ADDRESSES[0]} --data {self.folder}/tokens.bin --steps {self.steps} "
            f"--output {self.folder}/run --overwrite --no-save-model --quiet")
        other = subprocess.Popen(command(1), shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        shell(command(0))
        other.wait()
        return self.seconds_of_run()

    def simulate(self, run, ranks, cluster):
        path = os.path.join(self.folder, "cluster.yaml")
        with open(path, "w") as file:
            file.write(cluster)
        found = shell(f"{self.program} simulate {self.flags(*run)} --cluster {path} --ranks {ranks} --json")
        return json.loads(found.stdout)


def cluster_text(rates, ranks_on_machine, ranks_per_host, memory, shared, link):
    """Of one rank: its share of what the cores do together, of memory, and of its host's link."""
    products, attention = (rate / ranks_on_machine for rate in rates)
    return (f"gpu:\n  memory: 24GB\n  memory_bandwidth: {memory / ranks_on_machine / 1e9:.3f}GB/s\n"
            f"  bf16_tflops: {products / 1e12:.6f}\n  attention_tflops: {attention / 1e12:.6f}\n"
            f"gpus_per_host: {ranks_per_host}\n"
            f"inside: {{bandwidth: {shared / 1e9:.3f}GB/s, latency: 30us}}\n"
            f"between: {{bandwidth: {link / ranks_per_host / 1e9:.4f}GB/s, latency: 200us}}\n"
            f"bus: 100GB/s\ncollectives: hosts\n")


def fit(measured, simulated, low, high):
    """The rate at which the simulation takes as long as the run; more is faster."""
    for _ in range(18):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if simulated(middle) > measured else (low, middle)
    return (low * high) ** 0.5


def copy_speed():
    """Bytes per second that a copy by all cores reads and writes."""
    import numpy
    from concurrent.futures import ThreadPoolExecutor
    arrays = [(numpy.ones(1 << 27, numpy.uint8), numpy.ones(1 << 27, numpy.uint8)) for _ in range(os.cpu_count())]
    copy = lambda pair: numpy.copyto(pair[0], pair[1])
    best = 1e9
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(copy, arrays))
            best = min(best, time.perf_counter() - begin)
    return 2 * len(arrays) * (1 << 27) / best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.path.join(machine.ROOT, "build", "bin", "fullshard"))
    parser.add_argument("--output", default=os.path.join(machine.ROOT, "bench", "results", "simulated_ranks.md"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", default="", help="only rows whose 'place, model' has this text, printed and not written")
    given = parser.parse_args()
    rows = []
    is_wanted = lambda place, run: given.only in f"{place}, {run[0]}"
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(given.program), folder, given.steps)
        memory = copy_speed()
        shared = memory / 3  # a rank copies what others wrote: read, written, and read again by who uses it
        on_one = [bench.train((*run, "NO_SHARD"), 1) for run in FITTED]
        rates = [2e11, 1e11]
        alone = lambda rates, run: bench.simulate((*run, "NO_SHARD"), 1, cluster_text(rates, 1, 1, memory, shared, 1e9))["step_s"]
        for _ in range(3):
            rates[0] = fit(on_one[0], lambda rate: alone((rate, rates[1]), FITTED[0]), 1e9, 1e13)
            rates[1] = fit(on_one[1], lambda rate: alone((rates[0], rate), FITTED[1]), 1e9, 1e13)
        print(f"memory {memory / 1e9:.1f} GB/s, products {rates[0] / 1e9:.0f}, attention {rates[1] / 1e9:.0f} GFLOP/s (times the fp32 share)", flush=True)

        def add(place, run, ranks, seconds, cluster):
            found = bench.simulate(run, ranks, cluster)
            ratio = found["step_s"] / seconds
            rows.append(f"| {place} | {run[0]}, {run[1]} x {run[2]} | {run[3]} | {ranks} | {seconds * 1e3:.0f} | {found['step_s'] * 1e3:.0f} | "
                        f"{ratio:.3f}{'' if abs(ratio - 1) <= 0.1 else ' ✗'} | {found['exposed_communication_s'] * 1e3:.0f} |")
            print(rows[-1], flush=True)

        for run in ALONE:
            for ranks in (1, 2, 4) if is_wanted("one host", run) else ():
                add("one host", run, ranks, bench.train(run, ranks), cluster_text(rates, ranks, ranks, memory, shared / ranks, 1e9))
        for gigabits in (1, 10):
            place = f"two hosts, {gigabits} Gb/s"
            with TwoHosts(gigabits):
                for run in (run for run in APART if is_wanted(place, run)):
                    try:
                        seconds = bench.train_apart(run, 2)
                    except subprocess.CalledProcessError as error:
                        print(run, error.stderr[-500:], file=sys.stderr)
                        continue
                    # What TCP leaves of a frame of 1500 bytes.
                    link = gigabits * 1e9 / 8 * 1448 / 1514
                    add(place, run, 4, seconds, cluster_text(rates, 4, 2, memory, shared / 4, link))
    if given.only:
        return
    with open(given.output, "w") as file:
        file.write(machine.head("Simulations beside runs on CPU ranks", "bench/simulated_ranks.sh", peers=""))
        file.write("\nfp32, AdamW, random tokens; medians of the steps after 2. Hosts are network namespaces of this machine with two ranks each, whose "
                   "link `tc` (tbf) limits each way. ✗: not within 10 %.\n\n"
                   f"Fitted on one rank under NO_SHARD, {' and '.join(f'{m}, {b} x {l}' for m, b, l in FITTED)}: products {rates[0] / 1e9:.0f} and attention "
                   f"{rates[1] / 1e9:.0f} GFLOP/s of all cores together, as `bf16_tflops` and `attention_tflops` have it. Measured: copies at {memory / 1e9:.1f} GB/s.\n\n"
                   "| place | model | strategy | ranks | measured, ms | simulated, ms | simulated / measured | exposed communication, ms |\n" + "|" + " --- |" * 8 + "\n")
        file.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
