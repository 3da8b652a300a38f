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
import statistics
import subprocess
import sys
import tempfile
import time

import machine

SPACES, LINK, ADDRESSES = ("fullshard-sim-a", "fullshard-sim-b"), "fullsim0", ("10.213.78.1", "10.213.78.2")
FITTED = (("llama-15m", 8, 256), ("llama-15m", 1, 2048))
ONE_HOST, LINKS = "one host", (1, 10)
ALONE = [("llama-15m", 8, 256, "FULL_SHARD"), ("llama-15m", 8, 256, "NO_SHARD"), ("llama-110m", 2, 256, "FULL_SHARD"),
         ("gpt2-124m", 2, 256, "FULL_SHARD")]
APART = [("llama-15m", 8, 256, "FULL_SHARD"), ("llama-15m", 8, 256, "HYBRID_SHARD"), ("llama-110m", 2, 256, "FULL_SHARD"),
         ("llama-110m", 2, 256, "HYBRID_SHARD")]


def two_hosts(gigabits):
    return f"two hosts, {gigabits} Gb/s"


# Place, run and ranks of each.
ROWS = [(ONE_HOST, run, ranks) for run in ALONE for ranks in (1, 2, 4)] + [(two_hosts(link), run, 4) for link in LINKS for run in APART]


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


def measured(bench, rounds, wanted):
    """Medians over rounds, in each of which every run has its turn: the machine's speed drifts by more than they differ."""
    seconds, copies = {}, []
    def note(key, run, ranks, train):
        try:
            seconds.setdefault(key, []).append(train(run, ranks))
            print(*key, f"{seconds[key][-1]:.2f} s", flush=True)
        except subprocess.CalledProcessError as error:
            print(*key, error.stderr[-500:], file=sys.stderr)
    for _ in range(rounds):
        copies.append(copy_speed())
        for run in FITTED:
            note(("fitted", *run), (*run, "NO_SHARD"), 1, bench.train)
        for place, run, ranks in wanted:
            if place == ONE_HOST:
                note((place, run, ranks), run, ranks, bench.train)
        for gigabits in LINKS:
            with TwoHosts(gigabits):
                for place, run, ranks in wanted:
                    if place == two_hosts(gigabits):
                        note((place, run, ranks), run, ranks // 2, bench.train_apart)
    return {key: statistics.median(found) for key, found in seconds.items()}, statistics.median(copies)


def fitted_rates(bench, seconds, memory):
    alone = lambda rates, run: bench.simulate((*run, "NO_SHARD"), 1, cluster_text(rates, 1, 1, memory, memory / 3, 1e9))["step_s"]
    rates = [2e11, 1e11]
    for _ in range(3):
        for place in (0, 1):
            with_rate = lambda rate: [rate if other == place else rates[other] for other in (0, 1)]
            rates[place] = fit(seconds["fitted", *FITTED[place]], lambda rate: alone(with_rate(rate), FITTED[place]), 1e9, 1e13)
    return rates


def cluster_of(place, ranks, rates, memory):
    shared = memory / 3  # a rank copies what others wrote: read, written, and read again by who uses it
    if place == ONE_HOST:
        return cluster_text(rates, ranks, ranks, memory, shared / ranks, 1e9)
    gigabits = next(each for each in LINKS if place == two_hosts(each))
    link = gigabits * 1e9 / 8 * 1448 / 1514  # what TCP leaves of a frame of 1500 bytes
    return cluster_text(rates, ranks, ranks // 2, memory, shared / ranks, link)


def row(place, run, ranks, seconds, found):
    ratio = found["step_s"] / seconds
    return (f"| {place} | {run[0]}, {run[1]} x {run[2]} | {run[3]} | {ranks} | {seconds * 1e3:.0f} | {found['step_s'] * 1e3:.0f} | "
            f"{ratio:.3f}{'' if abs(ratio - 1) <= 0.1 else ' ✗'} | {found['exposed_communication_s'] * 1e3:.0f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.path.join(machine.ROOT, "build", "bin", "fullshard"))
    parser.add_argument("--output", default=os.path.join(machine.ROOT, "bench", "results", "simulated_ranks.md"))
    parser.add_argument("--steps", type=int, default=4, help="of a run, of which the first two do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows whose 'place, model' has this text, printed and not written")
    given = parser.parse_args()
    wanted = [(place, run, ranks) for place, run, ranks in ROWS if given.only in f"{place}, {run[0]}"]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(given.program), folder, given.steps)
        seconds, memory = measured(bench, given.rounds, wanted)
        rates = fitted_rates(bench, seconds, memory)
        rows = [row(*key, seconds[key], bench.simulate(key[1], key[2], cluster_of(key[0], key[2], rates, memory))) for key in wanted if key in seconds]
    print("\n".join(rows))
    within = f"{sum('✗' not in each for each in rows)} of {len(rows)} are within 10 %."
    if given.only:
        return
    with open(given.output, "w") as file:
        file.write(machine.head("Simulations beside runs on CPU ranks", "bench/simulated_ranks.sh", peers=""))
        file.write(f"\nfp32, AdamW, random tokens; {given.rounds} rounds, in each of which every run has its turn: medians over rounds of medians of the steps after 2. "
                   "Hosts are network namespaces of this machine with two ranks each, whose link `tc` (tbf) limits each way. ✗: not within 10 %.\n\n"
                   f"Fitted on one rank under NO_SHARD, {' and '.join(f'{m}, {b} x {l}' for m, b, l in FITTED)}, in the same rounds: products {rates[0] / 1e9:.0f} and "
                   f"attention {rates[1] / 1e9:.0f} GFLOP/s of all cores together, as `bf16_tflops` and `attention_tflops` have it. "
                   f"Measured: copies at {memory / 1e9:.1f} GB/s.\n\n"
                   "| place | model | strategy | ranks | measured, ms | simulated, ms | simulated / measured | exposed communication, ms |\n" + "|" + " --- |" * 8 + "\n")
        file.write("\n".join(rows) + f"\n\n{within}\n")


if __name__ == "__main__":
    main()
