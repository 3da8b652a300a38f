# SPDX-License-Identifier: Apache-2.0
"""Text generation with transformers, and the machine's copy speed; prints a line of JSON per measurement.

    generate.py make FOLDER MODEL DTYPE DEVICE     a folder with random weights
    generate.py run FOLDER DTYPE DEVICE BATCHES PROMPT NEW ROUNDS
    generate.py first FOLDER DTYPE DEVICE PROMPT   one token, for the time from the start of the process
    generate.py roof DEVICE                        bytes per second that a copy reads and writes
"""
import json
import random
import sys
import time

SHAPES = {  # layers, width, heads, key-value heads, feed-forward, vocabulary, tied: as the presets of the same names
    "llama-110m": (12, 768, 12, 12, 2048, 32000, True),
    "llama-1.1b": (22, 2048, 32, 4, 5632, 32000, False),
    "llama-8b": (32, 4096, 32, 8, 14336, 128256, False),
}


def prompts(batch, length, vocabulary):
    drawn = random.Random(1)
    return [[drawn.randrange(3, vocabulary) for _ in range(length)] for _ in range(batch)]


def make(folder, name, dtype, device):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    layers, width, heads, kv_heads, inner, vocabulary, tied = SHAPES[name]
    config = LlamaConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads,
                         num_key_value_heads=kv_heads, intermediate_size=inner, vocab_size=vocabulary,
                         tie_word_embeddings=tied, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    with torch.device(device):
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)


def load(folder, dtype, device):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
    return torch, model


def run(folder, dtype, device, batches, length, new, rounds):
    torch, model = load(folder, dtype, device)

    def seconds(ids, count, cache):
        settings = {"cache_implementation": cache} if cache == "static" else {}
        start = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0,
                                  **settings)
        tokens = made[:, ids.shape[1]:].tolist()
        return time.perf_counter() - start, tokens

    for batch in batches:
        ids = torch.tensor(prompts(batch, length, model.config.vocab_size), device=device)
        for cache in ("dynamic", "static"):
            seconds(ids, new, cache)  # compiles what it compiles
            few = min(seconds(ids, 8, cache)[0] for _ in range(rounds))
            all_of_them, tokens = min(seconds(ids, new, cache) for _ in range(rounds))
            print(json.dumps({"batch": batch, "cache": cache, "seconds": all_of_them,
                              "step_s": (all_of_them - few) / (new - 8), "tokens": tokens}), flush=True)


def first(folder, dtype, device, length):
    torch, model = load(folder, dtype, device)
    ids = torch.tensor(prompts(1, length, model.config.vocab_size), device=device)
    with torch.inference_mode():
        model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0).cpu()


def roof(device):
    import torch
    numel = 128 * 2**20 if device == "cpu" else 2**30
    source = torch.zeros(numel, dtype=torch.float32 if device == "cpu" else torch.bfloat16, device=device)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(6):
        start = time.perf_counter()
        target.copy_(source)
        if device != "cpu":
            torch.cuda.synchronize()
        best = max(best, 2 * source.numel() * source.element_size() / (time.perf_counter() - start))
    name = "" if device == "cpu" else torch.cuda.get_device_name()
    print(json.dumps({"bytes_per_s": best, "device": name, "torch": torch.__version__}))


def main():
    if sys.argv[-1] == "--one-thread":
        sys.argv.pop()
        import torch
        torch.set_num_threads(1)
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "make":
        make(*rest)
    elif what == "run":
        folder, dtype, device, batches, length, new, rounds = rest
        run(folder, dtype, device, [int(batch) for batch in batches.split(",")], int(length), int(new), int(rounds))
    elif what == "first":
        first(*rest[:3], int(rest[3]))
    else:
        roof(*rest)


if __name__ == "__main__":
    main()
