# SPDX-License-Identifier: Apache-2.0
"""The lines of speed and memory that must not fall: what they are, how they are measured, what was recorded
(bench/results/, on one H200). A figure moves with the commit that improves it, never down without a word."""
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import encoders  # noqa: E402  (their shapes and configurations)

SLOWER, LARGER = 0.03, 0.01  # what a fall is


@dataclasses.dataclass
class Line:
    name: str
    words: list
    recorded_ms: float
    recorded_gib: float = 0.0
    warm_up: int = 4
    steps: int = 8
    is_quick: bool = False


def tokens(model, length, batch, *words):
    return ["train", "--model", model, "--data", "tokens.bin", "--sequence-length", str(length), "--micro-batch", str(batch), "--order",
            "sequential", *words]


def encoder(name):
    model, batch, words, *_ = encoders.LINES[name]
    return ["train", "--model", model, "--sequence-length", "512", "--micro-batch", str(batch), *words]


def generation(batch, precision):
    return ["generate", "--model", "llama-1.1b-random", "--prompts", f"prompts-{batch}.jsonl", "--batch", str(batch), "--greedy", "--json",
            "--precision", precision]


BF16, FP8 = ["--precision", "bf16"], ["--precision", "fp8"]
LORA = ["--lora-rank", "16", "--lora-alpha", "32", "--lora-targets", "all-linear", *BF16]
LINES = [
    Line("gpt2-124m, 32 x 1024", tokens("gpt2-124m", 1024, 32, *BF16), 58.5, 7.9, is_quick=True),
    Line("gpt2-124m, 4 x 1024", tokens("gpt2-124m", 1024, 4, *BF16), 8.85, 2.8, warm_up=12, steps=40, is_quick=True),
    Line("llama-110m, 2 x 1024", tokens("llama-110m", 1024, 2, *BF16), 5.09, 2.0, warm_up=12, steps=40),
    Line("llama-1.1b, 8 x 2048", tokens("llama-1.1b", 2048, 8, *BF16), 215.3, 26.7, is_quick=True),
    Line("llama-1.1b, 8 x 2048, fp8", tokens("llama-1.1b", 2048, 8, *FP8), 170.3, 26.7),
    Line("llama-1.1b, 8 x 2048, optimizer in host memory", tokens("llama-1.1b", 2048, 8, "--offload", "optimizer", *BF16), 362, 17.0),
    Line("llama-3b, 4 x 2048", tokens("llama-3b", 2048, 4, *BF16), 311.7, 51.2),
    Line("llama-3b, 4 x 2048, fp8", tokens("llama-3b", 2048, 4, *FP8), 243.1, 51.4),
    Line("llama-8b with LoRA, 4 x 2048", tokens("llama-8b", 2048, 4, *LORA), 473.2, 39.3),
    Line("llama-8b with LoRA, 4 x 2048, recomputed", tokens("llama-8b", 2048, 4, *LORA, "--recompute"), 635.7, 18.6),
    Line("BERT-base, 32 x 512", encoder("BERT-base, 32 x 512") + BF16, 26.8, 5.0, warm_up=6, steps=24),
    Line("T5-base, 16 x 512 + 512", encoder("T5-base, 16 x 512 + 512") + BF16, 45.2, 7.0, warm_up=6, steps=24),
    Line("llama-1.1b generates, batch 1", generation(1, "bf16"), 1.02, is_quick=True),
    Line("llama-1.1b generates, batch 16", generation(16, "bf16"), 1.28),
    Line("llama-1.1b generates, batch 1, fp32", generation(1, "no"), 1.51),
]


@dataclasses.dataclass
class Start:
    """A run of one step: how long all but the step takes, which draws weights and takes page-locked memory."""
    name: str
    words: list
    within_s: float
    is_quick: bool = False


STARTS = [
    Start("llama-3b starts, all in host memory", tokens("llama-3b", 2048, 4, "--offload", "all", *BF16), 10),
    Start("14.8e9 parameters start, optimizer in host memory",
          tokens("qwen-14b", 2048, 4, "--from-scratch", "--offload", "optimizer", "--offload-step", "device", "--offload-resident", "38GB",
                 "--recompute", *BF16), 45),
]
PROMPT, FEW, MANY, BATCHES = 128, 8, 128, 8
MEASUREMENTS = 4  # at most, of a line that fell: other users of the host make a run slower, never faster


def make_random_llama(folder):
    """A folder of llama-1.1b with random weights; those of a preset are made anew by every command."""
    import torch
    from safetensors.torch import save_file
    os.makedirs(folder)
    width, inner, kv, layers, words = 2048, 5632, 256, 22, 32000
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": words, "hidden_size": width,
                   "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 4,
                   "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
                   "tie_word_embeddings": False}, file)

    def random_of(*sizes):
        return torch.empty(sizes, dtype=torch.bfloat16, device="cuda").normal_(std=0.02).cpu()

    tensors = {"model.embed_tokens.weight": random_of(words, width), "lm_head.weight": random_of(words, width),
               "model.norm.weight": torch.ones(width, dtype=torch.bfloat16)}
    for layer in range(layers):
        of_layer = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
                    "self_attn.o_proj": (width, width), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
                    "mlp.down_proj": (width, inner)}
        tensors |= {f"model.layers.{layer}.{name}.weight": random_of(*sizes) for name, sizes in of_layer.items()}
        tensors |= {f"model.layers.{layer}.{name}.weight": torch.ones(width, dtype=torch.bfloat16)
                    for name in ("input_layernorm", "post_attention_layernorm")}
    save_file(tensors, os.path.join(folder, "model.safetensors"))


def make_qwen_folder(folder):
    """The shape of Qwen2.5-14B, without weights."""
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
                   "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
                   "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
                   "tie_word_embeddings": False}, file)


def make_files(folder):
    encoders.make_files(folder)
    make_qwen_folder(os.path.join(folder, "qwen-14b"))
    drawn = random.Random(0)
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        file.write(b"".join(drawn.randrange(32000).to_bytes(2, "little") for _ in range(2_000_000)))
    for batch in (1, 16):
        with open(os.path.join(folder, f"prompts-{batch}.jsonl"), "w") as file:
            file.writelines(json.dumps({"tokens": [drawn.randrange(32000) for _ in range(PROMPT)]}) + "\n" for _ in range(BATCHES * batch))
    make_random_llama(os.path.join(folder, "llama-1.1b-random"))


def told(command, folder):
    """Standard output; raises with the end of what was said."""
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        raise RuntimeError(f"ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def measure_generation(line, binary, folder):
    """Milliseconds of a token: what the later ones add to a batch, the first batch of a process aside."""
    def seconds(num_new):
        command = [binary, *line.words, "--device", "cuda", "--ranks", "1", "--max-new-tokens", str(num_new), "--min-new-tokens", str(num_new)]
        batches = list(dict.fromkeys(json.loads(text)["seconds"] for text in told(command, folder).splitlines() if text.startswith("{")))
        return min(batches[1:])
    return 1000 * (seconds(MANY) - seconds(FEW)) / (MANY - FEW), 0.0


def train(binary, words, steps, folder):
    """The records of a run's steps."""
    told([binary, *words, "--ranks", "1", "--device", "cuda", "--steps", str(steps), "--lr", "1e-4", "--schedule", "constant", "--clip", "1",
          "--output", "line", "--overwrite", "--no-save-model", "--quiet"], folder)
    with open(os.path.join(folder, "line", "metrics.jsonl")) as file:
        return [json.loads(text) for text in file]


def measure_start(start, binary, folder):
    """Seconds of a run that are not its step's."""
    begin = time.monotonic()
    records = train(binary, start.words, 1, folder)
    return time.monotonic() - begin - sum(record["step_s"] for record in records)


def measure(line, binary, folder):
    """Milliseconds of a step and GiB at its fullest; raises with the end of what was said."""
    if line.words[0] == "generate":
        return measure_generation(line, binary, folder)
    records = train(binary, line.words, line.warm_up + line.steps, folder)
    return (1000 * statistics.median(record["step_s"] for record in records[line.warm_up:]),
            max(record["device_peak_bytes"] for record in records) / 2**30)


def verdict(line, found_ms, found_gib):
    """In words; empty where nothing fell. Records have one digit, which is not a fall."""
    falls = []
    if found_ms > line.recorded_ms * (1 + SLOWER):
        falls.append(f"{found_ms / line.recorded_ms - 1:.1%} slower than recorded")
    if line.recorded_gib and found_gib > line.recorded_gib * (1 + LARGER) + 0.05:
        falls.append(f"{found_gib / line.recorded_gib - 1:.1%} more memory than recorded")
    return ", ".join(falls)


def verdict_of_start(start, found_s):
    return "" if found_s <= start.within_s else f"{found_s:.1f} s, {start.within_s} s are promised"
