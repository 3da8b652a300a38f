# SPDX-License-Identifier: Apache-2.0
"""Runs of `fullshard train` as somebody beside them sees them: what they wrote, their processes, their GPUs."""
import array
import hashlib
import json
import os
import random
import shutil
import subprocess
import time

VOCABULARY = 512  # of the tiny model; every model knows these tokens
TINY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 64,
        "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "torch_dtype": "float32"}


def random_tokens(folder):
    path = os.path.join(folder, "tokens.bin")
    numbers = random.Random(0)
    with open(path, "wb") as file:
        array.array("H", [numbers.randrange(VOCABULARY) for _ in range(500_000)]).tofile(file)
    return path


def tiny_model(folder):
    path = os.path.join(folder, "tiny")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(TINY, file)
    return path


def visible_gpus():
    """Name and UUID of each, as nvidia-smi and CUDA_VISIBLE_DEVICES have it; none without a driver."""
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=name,uuid", "--format=csv,noheader"], capture_output=True,
                               text=True)
    except OSError:
        return []
    gpus = [tuple(line.split(", ")) for line in found.stdout.splitlines()] if found.returncode == 0 else []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return gpus if chosen is None else gpus[:len([one for one in chosen.split(",") if one.strip()])]


class Run:
    """One `fullshard train`, in a folder of its own."""

    def __init__(self, binaries, folder, ranks, words):
        self.output = os.path.join(folder, "run")
        self.errors_path = os.path.join(folder, "errors.txt")
        self.binaries = binaries
        self.command = [os.path.join(binaries, "fullshard"), "train", "--ranks", str(ranks), "--order", "sequential",
                        "--schedule", "constant", "--lr", "1e-4", "--clip", "1", "--output", self.output,
                        "--overwrite", "--quiet", "--json", *words]
        self.process = None

    def start(self):
        shutil.rmtree(self.output, ignore_errors=True)  # records of a run before it
        with open(self.errors_path, "w") as errors:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=errors,
                                            env={"OMP_NUM_THREADS": "1", **os.environ})
        return self

    def finish(self):
        """True: it ended well."""
        self.start()
        return self.process.wait() == 0

    def errors(self):
        with open(self.errors_path) as errors:
            return errors.read()

    def records(self):
        try:
            with open(os.path.join(self.output, "metrics.jsonl")) as lines:
                return [json.loads(line) for line in lines if line.endswith("\n")]
        except OSError:
            return []

    def weights_hash(self):
        with open(os.path.join(self.output, "model", "model.safetensors"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def await_steps(self, steps, limit_s):
        """False: it ended before, or took too long."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end and self.process.poll() is None:
            if len(self.records()) >= steps:
                return True
            time.sleep(0.05)
        return False

    def ranks(self):
        """The process of each rank, by its number."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as line:
                    words = line.read().split(b"\0")
                with open(f"/proc/{pid}/environ", "rb") as line:
                    variables = dict(word.split(b"=", 1) for word in line.read().split(b"\0") if b"=" in word)
            except OSError:
                continue
            if words[0].endswith(b"fullshard-core") and self.output.encode() in words and b"RANK" in variables:
                found[int(variables[b"RANK"])] = int(pid)
        return found

    def end(self):
        """Kills what is left of it."""
        for pid in self.ranks().values():
            try:
                os.kill(pid, 9)
            except OSError:
                pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def gpus_of(pids):
    """The UUIDs of GPUs on which each process has a context; None where nvidia-smi does not know the processes."""
    found = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"],
                           capture_output=True, text=True)
    gpus = {pid: set() for pid in pids}
    for line in found.stdout.splitlines():
        pid, _, uuid = line.partition(", ")
        if pid.isdigit() and int(pid) in gpus:
            gpus[int(pid)].add(uuid)
    return gpus if any(gpus.values()) else None
