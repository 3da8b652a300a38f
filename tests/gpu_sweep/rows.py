# SPDX-License-Identifier: Apache-2.0
"""The table of the sweep."""
import itertools
import json
import os

from models import CONFIGS, DECODERS, TRANSLATORS, data_of, prompts_of
from row import Row

OUTPUT = ["--output", "run", "--overwrite", "--no-save-model", "--quiet"]
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
ON_CPU = {"fp8": (("--precision", "bf16"),)}  # what a CPU has not is asked of it as the nearest it has


def train(family, *words, steps=4, length="48", micro_batch="4", lr="1e-4"):
    # From new weights, whose gradients are larger than what rounding does to them.
    return ["train", "--model", family, "--from-scratch", *data_of(family), "--sequence-length", length, "--micro-batch", micro_batch,
            "--steps", str(steps), "--lr", lr, "--schedule", "constant", "--clip", "1", *OUTPUT, *words]


def trained(name, family, *words, precision="no", quick=False, ranks=1, **settings):
    command = train(family, "--precision", precision, "--ranks", str(ranks), *words, **settings)
    return Row(f"train {family}, {precision}, {name}", [command], precision=precision, is_quick=quick,
               differs_on_cpu=ON_CPU.get(precision, ()))


def families():
    ways = {"plain": [], "recomputed": ["--recompute"], "in 2 parts": ["--accumulate", "2"],
            "recomputed in 3 parts": ["--recompute", "--accumulate", "3"]}
    for family, precision, (way, words) in itertools.product(CONFIGS, ["no", "bf16", "fp16", "fp8"], ways.items()):
        yield trained(way, family, *words, precision=precision, quick=precision == "bf16" and way != "in 2 parts")
    # The shape is captured as a graph after some steps.
    for family in CONFIGS:
        yield trained("12 steps", family, precision="bf16", steps=12, quick=family in ("llama", "t5"))
    for family, length in itertools.product(CONFIGS, ["7", "13", "37"]):
        yield trained(f"sequences of {length}", family, precision="bf16", length=length, quick=length == "13")


def optimizers():
    for name, precision in itertools.product(["AdamW", "Adam", "Lamb", "SGD", "Adagrad", "Lion"], ["no", "bf16"]):
        yield trained(name, "llama", "--optimizer", name, precision=precision, quick=precision == "bf16")
        yield trained(f"{name}, in host memory", "llama", "--optimizer", name, "--offload", "optimizer", precision=precision)
    frozen = ["--optimizer", "OneBitAdam", "--set", "optimizer.params.freeze_step=3", "--strategy", "NO_SHARD"]
    for ranks, precision in itertools.product([1, 2], ["no", "bf16"]):
        yield trained(f"OneBitAdam past its freeze, {ranks} ranks", "llama", *frozen, precision=precision, ranks=ranks, steps=7, lr="1e-6",
                      quick=precision == "bf16")


def strategies():
    for strategy, ranks, more in itertools.product(["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"], [1, 2],
                                                   [[], ["--accumulate", "2"], ["--accumulate", "2", "--reduce-once"]]):
        for precision in ["no", "bf16"]:
            yield trained(" ".join([strategy, f"{ranks} ranks", *more]), "gpt2", "--strategy", strategy, *more, precision=precision,
                          ranks=ranks, quick=strategy in ("FULL_SHARD", "NO_SHARD") and precision == "bf16" and len(more) != 2)
    for family in CONFIGS:
        yield trained("2 ranks", family, precision="bf16", ranks=2)


def offloads():
    for stage, parts, step in itertools.product(["1", "2", "3"], ["1", "2"], ["auto", "device", "host", "0.3"]):
        yield trained(f"stage {stage}, optimizer in host memory, step {step}, {parts} parts", "llama", "--zero-stage", stage, "--accumulate",
                      parts, "--offload", "optimizer", "--offload-step", step, precision="bf16", quick=stage in "13" and parts == "1")
    for parts, step in itertools.product(["1", "2"], ["auto", "device", "host"]):  # of stage 3 alone, as DeepSpeed has it
        yield trained(f"optimizer on a disk, step {step}, {parts} parts", "llama", "--accumulate", parts, "--offload", "optimizer:{disk}",
                      "--offload-step", step, precision="bf16", quick=step == "auto")
    for what, parts, precision in itertools.product(["param", "all"], ["1", "3"], ["no", "bf16"]):
        for place in ["cpu", "{disk}"]:
            yield trained(f"{what} in {'host memory' if place == 'cpu' else 'files'}, {parts} parts", "llama", "--offload", f"{what}:{place}",
                          "--accumulate", parts, precision=precision, quick=precision == "bf16" and parts == "1")
    for family in CONFIGS:
        for precision in ["no", "bf16", "fp8"]:
            yield trained("optimizer in host memory", family, "--offload", "optimizer", precision=precision)
        yield trained("all in host memory, recomputed", family, "--offload", "all", "--recompute", precision="bf16", steps=10)
    yield trained("half of the states in host memory", "llama", "--offload", "optimizer", "--offload-ratio", "0.5", precision="bf16", quick=True)
    yield trained("states in host memory but for 1 MiB", "llama", "--offload", "optimizer", "--offload-resident", "1MiB", precision="bf16")
    yield trained("optimizer in host memory, 2 ranks", "llama", "--offload", "optimizer", precision="bf16", ranks=2, quick=True)
    yield trained("all in host memory, 2 ranks", "llama", "--offload", "all", precision="bf16", ranks=2)
    kept = json.dumps({"activation_checkpointing": {"cpu_checkpointing": True}, "train_micro_batch_size_per_gpu": 4,
                       "gradient_accumulation_steps": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3},
                       "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})
    for family in ["llama", "gpt2", "t5"]:
        words = ["train", "--model", family, "--from-scratch", *data_of(family), "--sequence-length", "48", "--steps", "4", "--ranks", "1",
                 "--deepspeed", kept, *OUTPUT]
        yield Row(f"train {family}, bf16, activations in host memory", [words], precision="bf16", is_quick=family == "llama")


def checkpoints():
    def saved(*words):
        return train("llama", "--save-every", "2", *words)

    def resumed(*words):
        again = [word for word in train("llama", "--resume", "auto", *words, steps=6) if word != "--overwrite"]
        return again

    for name, words in {"": [], ", written meanwhile": ["--async-save"], ", states in host memory": ["--offload", "optimizer"],
                        ", states on a disk": ["--offload", "optimizer:{disk}"], ", 2 ranks": ["--ranks", "2"]}.items():
        words = [*words, *([] if "--ranks" in words else ["--ranks", "1"]), "--precision", "bf16"]
        yield Row(f"save and resume{name}", [saved(*words), resumed(*words)], precision="bf16", is_quick=name == "")
    yield Row("save, verify and to-fp32", [saved("--ranks", "1"), ["checkpoint", "verify", "run/checkpoints"],
                                           ["checkpoint", "to-fp32", "run/checkpoints", "whole"]], sees="nothing", has_cpu=False)


def generation():
    def generate(family, precision, *words):
        return ["generate", "--model", f"{family}-trained/model", "--tokenizer", "bytes", "--prompts", prompts_of(family), "--precision", precision,
                "--json", "--ranks", "1", *words]

    def generated(name, family, precision, *words, quick=False):
        return Row(f"generate {family}, {precision}, {name}", [generate(family, precision, *words)], sees="tokens", precision=precision,
                   is_quick=quick)

    for family, precision, batch in itertools.product(DECODERS + TRANSLATORS, ["no", "bf16"], ["1", "2", "5"]):
        quick = precision == "bf16"
        # What comes after a translation's words was not learnt.
        plain = ["--greedy", "--max-new-tokens", "6" if family in TRANSLATORS else "24"]
        yield generated(f"{batch} at a time", family, precision, *plain, "--batch", batch, quick=quick and batch != "1")
        if batch == "2":  # the last one is alone
            continue
        yield generated(f"beams, {batch} at a time", family, precision, "--num-beams", "3", *plain[1:], "--batch", batch)
        for name, words in {"cache in host memory": ["--cache", "host"], "weights in host memory": ["--offload", "param"],
                            "half of the weights in host memory": ["--offload", "param", "--resident-share", "0.5"],
                            "weights on a disk": ["--offload", "param:{disk}"],
                            "weights and cache in host memory": ["--offload", "param", "--cache", "host"]}.items():
            yield generated(f"{name}, {batch} at a time", family, precision, *plain, "--batch", batch, *words,
                            quick=quick and family in ("llama", "t5") and batch == "5" and "half" not in name)
    plain = ["--greedy", "--max-new-tokens", "24"]
    for family in DECODERS:
        yield generated("prompts in pieces", family, "bf16", *plain, "--prefill-tokens", "5")
        yield generated("no pair of tokens twice", family, "no", *plain, "--no-repeat-ngram", "2")
    yield Row("generate llama, 2 ranks", [["generate", "--model", "llama-trained/model", "--tokenizer", "bytes", "--prompts", "prompts.jsonl",
                                           "--json", "--ranks", "2", *plain]], sees="tokens")


def comparisons():
    folder = os.path.join(FIXTURES, "models")
    for name in sorted(os.listdir(folder)):
        reference = os.path.join(folder, name, "reference.safetensors")
        if os.path.exists(reference):
            yield Row(f"compare {name}", [["compare", "--model", os.path.join(folder, name), "--reference", reference, "--json", "--ranks", "1"]],
                      sees="nothing", has_cpu=False, is_quick=True)


def adapters():
    for family, base, precision in itertools.product(["llama", "gpt2", "bert", "t5"], ["", "int8"], ["no", "bf16"]):
        words = ["--lora-rank", "8", "--lora-alpha", "16", "--lora-targets", "all-linear", *(["--base-precision", base] if base else [])]
        yield trained(f"LoRA{', base in 8 bits' if base else ''}", family, *words, precision=precision, quick=family == "llama")
        yield trained(f"LoRA, recomputed{', base in 8 bits' if base else ''}", family, *words, "--recompute", precision=precision)
    yield trained("LoRA, 2 ranks, stage 3", "llama", "--lora-rank", "8", "--zero-stage", "3", precision="bf16", ranks=2)


def tasks():
    for family, precision in itertools.product(DECODERS, ["no", "bf16"]):
        for name, words in {"answers": [], "answers and prompts": ["--loss-on", "all"], "packed": ["--packing"],
                            "packed, recomputed": ["--packing", "--recompute"]}.items():
            command = train(family, "--precision", precision, "--ranks", "1", *words)
            command[command.index("text.txt")] = "answers.jsonl"
            yield Row(f"train {family}, {precision}, {name}", [command], precision=precision, is_quick=precision == "bf16" and name == "packed")
    for family, (source, target) in itertools.product(TRANSLATORS, [("37", "13"), ("15", "30"), ("9", "9")]):
        for precision in ["no", "bf16", "fp16"]:
            yield trained(f"{source} to {target} tokens", family, "--target-length", target, precision=precision, length=source,
                          quick=precision != "fp16")
    for family, precision in itertools.product(CONFIGS, ["no", "bf16"]):
        words = ["eval", "--model", f"{family}-trained/model", *data_of(family)[:-2], "--sequence-length", "37", "--eval-batches", "3",
                 "--precision", precision, "--json", "--ranks", "1"]
        yield Row(f"eval {family}, {precision}", [words], sees="numbers", precision=precision, is_quick=precision == "bf16")
    yield trained("evaluated on the way", "llama", "--eval-data", "text.txt", "--eval-every", "2", "--eval-batches", "2", precision="bf16")
    yield trained("labels smoothed", "t5", "--label-smoothing", "0.1", precision="bf16")
    yield trained("the same bits", "llama", "--deterministic", precision="bf16", quick=True)
    yield trained("without graphs", "llama", "--no-graphs", precision="bf16", steps=12)
    yield trained("tf32", "llama", "--tf32", "on", precision="bf16")


def commands():
    def alone(name, *words, quick=False):
        return Row(name, [list(words)], sees="nothing", has_cpu=False, is_quick=quick)

    yield alone("doctor", "doctor", quick=True)
    for offload in [[], ["--offload", "all"], ["--recompute"]]:
        yield alone(" ".join(["estimate", *offload]), "estimate", "--model", "llama-1.1b", "--device-memory", "80GB", "--precision", "bf16",
                    "--ranks", "8", *offload, quick=True)
    yield alone("tune", "tune", "--model", "llama", "--from-scratch", *data_of("llama"), "--sequence-length", "48", "--ranks", "1", "--budget", "0.5",
                "--max-micro-batch", "8", "--measure-steps", "2")
    yield alone("trace", *train("llama", "--ranks", "1", "--trace", "trace.json", "--precision", "bf16"))
    yield alone("bench bus", "bench", "bus")
    yield alone("bench step", "bench", "step", "--model", "llama-15m", "--steps", "4", "--ranks", "1")
    yield alone("bench optimizer", "bench", "optimizer")


def all_rows():
    tables = [families, optimizers, strategies, offloads, checkpoints, generation, comparisons, adapters, tasks, commands]
    return [row for table in tables for row in table()]
