# SPDX-License-Identifier: Apache-2.0
"""Simulations beside runs on CPU ranks of this machine; writes bench/results/simulated_ranks.md.

Called by bench/simulated_ranks.sh, as root: it makes two network namespaces whose link `tc` limits. Two constants are
fitted, on two runs with a rank for each core: the rates that products and attention sustain on all cores together. Ranks
share the cores, the memory and what the constants say; memory, shared memory and links are measured: copies, and the
collectives of `fullshard bench comm`.
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

UNLIMITED = "two hosts, without a limit"
SPACES, LINK, ADDRESSES = ("fullshard-sim-a", "fullshard-sim-b"), "fullsim0", ("10.213.78.1", "10.213.78.2")
CORES = os.cpu_count()
FITTED = (("llama-15m", 8, 256, "NO_SHARD"), ("llama-15m", 1, 2048, "NO_SHARD"))
MEASURED_MIB = 16  # about a block of llama-110m
ONE_HOST, LINKS = "one host", (1, 10)
ALONE = [("llama-15m", 8, 256, "FULL_SHARD"), ("llama-15m", 8, 256, "NO_SHARD"), ("llama-110m", 2, 256, "FULL_SHARD"),
         ("gpt2-124m", 2, 256, "FULL_SHARD")]
APART = [("llama-15m", 8, 256, "FULL_SHARD"), ("llama-15m", 8, 256, "HYBRID_SHARD"), ("llama-110m", 2, 256, "FULL_SHARD"),
         ("llama-110m", 2, 256, "HYBRID_SHARD")]


def two_hosts(gigabits):
    return f"two hosts, {gigabits} Gb/s"


FIT_ROWS = [(ONE_HOST, run, CORES) for run in FITTED]
# Place, run and ranks of each.
ROWS = [(ONE_HOST, run, ranks) for run in ALONE for ranks in (1, 2, 4)] + [(two_hosts(link), run, 4) for link in LINKS for run in APART]


def shell(command, check=True):
    return subprocess.run(command, shell=True, check=check, capture_output=True, text=True)


class TwoHosts:
    """Two namespaces with a link that carries so many Gb/s each way, or as much as it can."""

    def __init__(self, gigabits):
        self.remove()
        a, b = SPACES
        shell(f"ip netns add {a} && ip netns add {b} && ip link add {LINK} netns {a} type veth peer name {LINK} netns {b}")
        for space, address in zip(SPACES, ADDRESSES):
            shell(f"ip -n {space} addr add {address}/24 dev {LINK} && ip -n {space} link set {LINK} up && ip -n {space} link set lo up")
            if gigabits is not None:
                shell(f"tc -n {space} qdisc add dev {LINK} root tbf rate {gigabits}gbit burst {max(64, 64 * gigabits)}kb latency 50ms")

    def remove(self):
        for space in SPACES:
            shell(f"ip netns del {space}", check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Bench:
    def __init__(self, binaries, folder, steps):
        self.program = os.path.join(binaries, "fullshard")
        self.folder, self.steps = folder, steps
        drawn = random.Random(0)
        with open(os.path.join(folder, "tokens.bin"), "wb") as file:
            file.write(b"".join(drawn.randrange(32000).to_bytes(2, "little") for _ in range(400_000)))

    def flags(self, model, batch, length, strategy):
        return f"--model {model} --micro-batch {batch} --sequence-length {length} --strategy {strategy}"

    def train_flags(self, run, ranks):
        """Runs of few ranks have short steps, and more of them."""
        steps = 2 + max(3, self.steps // ranks)
        return f"{self.flags(*run)} --device cpu --data {self.folder}/tokens.bin --steps {steps} --output {self.folder}/run --overwrite --no-save-model --quiet"

    def seconds_of_steps(self):
        with open(os.path.join(self.folder, "run", "metrics.jsonl")) as file:
            return [json.loads(line)["step_s"] for line in list(file)[2:]]

    def on_both(self, ranks, command):
        """`command` with the flags that find the other host, on both; what the first printed."""
        parts = [f"ip netns exec {space} env FULLSHARD_JOB_SECRET=bench {self.program} " +
                 command.format(f"--ranks {ranks // 2} --nnodes 2 --node-rank {node} --master-addr {ADDRESSES[0]}")
                 for node, space in enumerate(SPACES)]
        other = subprocess.Popen(parts[1], shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        found = shell(parts[0])
        other.wait()
        return found.stdout

    def train(self, place, run, ranks):
        if place == ONE_HOST:
            shell(f"{self.program} train --ranks {ranks} {self.train_flags(run, ranks)}")
        else:
            self.on_both(ranks, f"train {{}} {self.train_flags(run, ranks)}")
        return self.seconds_of_steps()

    def seconds_of_collectives(self, place, ranks):
        """Of a gather and a reduction of MEASURED_MIB, their mean, while nothing else runs."""
        words = f"--device cpu --size {MEASURED_MIB}MiB --json"
        text = shell(f"{self.program} bench comm --ranks {ranks} {words}").stdout if place == ONE_HOST else self.on_both(ranks, f"bench comm {{}} {words}")
        found = json.loads(text)["collectives"]
        return statistics.mean(line["seconds"] for line in found if line["name"] in ("all_gather in place", "reduce_scatter"))

    def simulate(self, run, ranks, cluster):
        path = os.path.join(self.folder, "cluster.yaml")
        with open(path, "w") as file:
            file.write(cluster)
        found = shell(f"{self.program} simulate {self.flags(*run)} --cluster {path} --ranks {ranks} --json")
        return json.loads(found.stdout)


class Machine:
    """What was measured of it, and the rates that were fitted."""

    def __init__(self):
        self.memory, self.inside, self.between, self.rates = 0, {1: 1e10}, {}, [2e11, 1e11]

    def note_links(self, seconds):
        """Bytes per second of a rank, by ranks that share the machine and by place."""
        size = MEASURED_MIB << 20
        for (place, ranks), taken in seconds.items():
            if place == ONE_HOST:
                self.inside[ranks] = size * (ranks - 1) / ranks / taken
            else:
                self.between[place] = size / 2 / (ranks // 2) / taken

    def cluster(self, place, ranks, rates=None):
        """Of one rank: its share of what the cores do together, of memory, and of its host's link."""
        products, attention = (rate / ranks for rate in rates or self.rates)
        return (f"gpu:\n  memory: 24GB\n  memory_bandwidth: {self.memory / ranks / 1e9:.3f}GB/s\n"
                f"  bf16_tflops: {products / 1e12:.6f}\n  attention_tflops: {attention / 1e12:.6f}\n"
                f"gpus_per_host: {ranks if place == ONE_HOST else ranks // 2}\n"
                f"inside: {{bandwidth: {self.inside[ranks] / 1e9:.3f}GB/s, latency: 30us}}\n"
                f"between: {{bandwidth: {self.between.get(place, 1e9) / 1e9:.4f}GB/s, latency: 200us, sockets: {self.between.get(UNLIMITED, 1e9) / 1e9:.4f}GB/s}}\n"
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
    """The fastest of the steps of all rounds, in each of which every run has its turn: neighbours on a shared machine only
    add to a step, at times half of it. Of collectives and copies too."""
    steps, collectives, copies = {}, {}, []
    def note(found, key, values):
        found.setdefault(key, []).extend(values)
        print(*key, f"{statistics.median(values):.3f} s of {min(values):.3f} to {max(values):.3f}", flush=True)
    def measure(place):
        for row in wanted:
            if row[0] == place:
                note(steps, row, bench.train(*row))
    def measure_links(place, counts):
        for ranks in counts:
            note(collectives, (place, ranks), [bench.seconds_of_collectives(place, ranks)])
    for _ in range(rounds):
        copies.append(copy_speed())
        measure_links(ONE_HOST, (2, 4))
        measure(ONE_HOST)
        with TwoHosts(None):
            measure_links(UNLIMITED, (4,))
        for gigabits in LINKS:
            with TwoHosts(gigabits):
                measure_links(two_hosts(gigabits), (4,))
                measure(two_hosts(gigabits))
    fastest = lambda found: {key: min(values) for key, values in found.items()}
    machine_found = Machine()
    machine_found.memory = max(copies)
    machine_found.note_links(fastest(collectives))
    return fastest(steps), machine_found


def fit_rates(bench, seconds, found):
    for _ in range(3):
        for place, row in enumerate(FIT_ROWS):
            with_rate = lambda rate: [rate if other == place else found.rates[other] for other in (0, 1)]
            simulated = lambda rate: bench.simulate(row[1], row[2], found.cluster(row[0], row[2], with_rate(rate)))["step_s"]
            found.rates[place] = fit(seconds[row], simulated, 1e9, 1e13)


def row(place, run, ranks, seconds, found):
    ratio = found["step_s"] / seconds
    return (f"| {place} | {run[0]}, {run[1]} x {run[2]} | {run[3]} | {ranks} | {seconds * 1e3:.0f} | {found['step_s'] * 1e3:.0f} | "
            f"{ratio:.3f}{'' if abs(ratio - 1) <= 0.1 else ' ✗'} | {found['exposed_communication_s'] * 1e3:.0f} |")


def page(rows, found, rounds):
    """What was done, the table, and how many rows met the goal."""
    text = machine.head("Simulations beside runs on CPU ranks", "bench/simulated_ranks.sh", peers="")
    text += (f"\nfp32, AdamW, random tokens; {rounds} rounds, in each of which every run has its turn: the fastest of the steps of all rounds, without the first 2 of each: "
             "neighbours on a shared machine only add to a step, at times half of it. "
             "Hosts are network namespaces of this machine with two ranks each, whose link `tc` (tbf) limits each way. ✗: not within 10 %.\n\n"
             f"Fitted with a rank for each core, {' and '.join(f'{m}, {b} x {l}, {s}' for m, b, l, s in FITTED)}, in the same rounds: products {found.rates[0] / 1e9:.0f} and "
             f"attention {found.rates[1] / 1e9:.0f} GFLOP/s of all cores together, as `bf16_tflops` and `attention_tflops` have it. "
             f"Measured in the same rounds: copies at {found.memory / 1e9:.1f} GB/s; gathers and reductions of {MEASURED_MIB} MiB reach, for each rank, "
             + ", ".join(f"{found.inside[ranks] / 1e9:.2f} GB/s with {ranks} ranks on one host" for ranks in sorted(found.inside) if ranks > 1) + ", "
             + ", ".join(f"{rate / 1e9:.3f} GB/s of its share of the network on {place}" for place, rate in found.between.items()) + ".\n\n"
             "| place | model | strategy | ranks | measured, ms | simulated, ms | simulated / measured | exposed communication, ms |\n" + "|" + " --- |" * 8 + "\n")
    return text + "\n".join(rows) + f"\n\n{sum('✗' not in each for each in rows)} of {len(rows)} are within 10 %.\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"), help="folder of fullshard")
    parser.add_argument("--output", default=os.path.join(machine.ROOT, "bench", "results", "simulated_ranks.md"))
    parser.add_argument("--steps", type=int, default=12, help="of a run of one rank that count; N ranks make an Nth, and at least 3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows whose 'place, model' has this text, and those of the fit; printed, not written")
    given = parser.parse_args()
    wanted = FIT_ROWS + [row for row in ROWS if given.only in f"{row[0]}, {row[1][0]}" and row not in FIT_ROWS]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(given.binaries), folder, given.steps)
        seconds, found = measured(bench, given.rounds, wanted)
        fit_rates(bench, seconds, found)
        rows = [row(*key, seconds[key], bench.simulate(key[1], key[2], found.cluster(key[0], key[2]))) for key in ROWS if key in seconds]
    print(page(rows, found, given.rounds))
    if given.only:
        return
    with open(given.output, "w") as file:
        file.write(page(rows, found, given.rounds))


if __name__ == "__main__":
    main()
