# SPDX-License-Identifier: Apache-2.0
"""Files changed by chance or with bad intent, given to every command that reads them."""
import json
import os
import shutil

import commands

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
LIMIT_S, LIMIT_BYTES = 60, 3 << 30
STATUSES = (0, 1, 2, 3, 4)
NUMBERS = ["-1", "0", "1e309", "-0.0", "NaN", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e-320", "2147483648",
           "4294967297", "0.5", "null", "true", "\"7\"", "[]", "{}"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
CONFIG = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "mixed_precision": "no", "num_processes": 1, "num_machines": 1,
          "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 100}}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1024, "hidden_size": 32, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
         "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 10000.0}
TRAIN = ["train", "--data", "t.bin", "--sequence-length", "16", "--steps", "1", "--ranks", "1", "--micro-batch", "2"]
DEEPSPEED = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}}, "gradient_clipping": 1.0}


def make_files(binaries, folder):
    """A model folder with all that one can hold, data and configurations."""
    texts = {"shape/config.json": json.dumps(LLAMA), "accelerate.json": json.dumps(CONFIG), "deepspeed.json": json.dumps(DEEPSPEED),
             "chats.jsonl": "".join(json.dumps({"messages": [{"role": "user", "content": f"one {i}"}, {"role": "assistant", "content": "two"}]}) + "\n"
                                    for i in range(20)),
             "prompts.jsonl": json.dumps({"messages": [{"role": "user", "content": "one"}]}) + "\n"}
    for name, text in texts.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    with open(os.path.join(folder, "t.bin"), "wb") as file:
        file.write(b"".join((3 + i * i % 7).to_bytes(2, "little") for i in range(2000)))
    made = commands.run([os.path.join(binaries, "fullshard"), *TRAIN, "--model", "shape", "--from-scratch", "--output", "made"], folder, LIMIT_S)
    if made.status != 0:
        raise RuntimeError(f"the model was not made: {commands.last_error(made.said)}")
    shutil.move(os.path.join(folder, "made", "model"), os.path.join(folder, "model"))
    shutil.rmtree(os.path.join(folder, "made"))
    shutil.copy(os.path.join(FIXTURES, "text", "llama3", "tokenizer.json"), os.path.join(folder, "model"))
    in_model = {"generation_config.json": json.dumps({"max_new_tokens": 4, "num_beams": 2, "temperature": 0.8, "eos_token_id": 2}),
                "chat_template.jinja": TEMPLATE, "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>"})}
    for name, text in in_model.items():
        with open(os.path.join(folder, "model", name), "w") as file:
            file.write(text)


# Which files a command reads, of those that make_files makes.
COMMANDS = [
    (["estimate", "--model", "model", "--ranks", "2", "--sequence-length", "16"], ["model/config.json", "model/model.safetensors"]),
    (["eval", "--model", "model", "--data", "t.bin", "--sequence-length", "16", "--micro-batch", "2", "--max-samples", "4"],
     ["model/config.json", "model/model.safetensors", "t.bin"]),
    (["generate", "--model", "model", "--prompts", "prompts.jsonl", "--max-new-tokens", "2"],
     ["model/config.json", "model/model.safetensors", "model/generation_config.json", "model/tokenizer.json", "prompts.jsonl"]),
    (["train", "--data", "chats.jsonl", "--model", "model", "--sequence-length", "64", "--steps", "1", "--ranks", "1", "--output", "run",
      "--micro-batch", "2", "--overwrite", "--no-save-model"],
     ["chats.jsonl", "model/chat_template.jinja", "model/tokenizer.json", "model/tokenizer_config.json"]),
    (["config", "check", "accelerate.json"], ["accelerate.json"]),
    (["config", "explain", "deepspeed.json"], ["deepspeed.json"]),
    ([*TRAIN, "--config", "deepspeed.json", "--model", "model", "--output", "run", "--overwrite", "--no-save-model"], ["deepspeed.json", "model/config.json", "model/model.safetensors"]),
]


def nested(drawn):
    opening, closing = drawn.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"{% if 1 %}", b"{% endif %}"), (b"(", b")")])
    depth = drawn.choice([50, 5000, 100000])
    return opening * depth + b"1" + closing * depth


def change(drawn, content):
    """(How, the changed bytes.)"""
    kind = drawn.choice(["flip", "cut", "double", "number", "nest", "noise", "word"])
    place = drawn.randrange(max(1, len(content)))
    end = min(len(content), place + drawn.choice([1, 8, 300]))
    if kind == "flip":
        changed = bytearray(content)
        for _ in range(drawn.choice([1, 4, 40])):
            changed[drawn.randrange(len(changed))] ^= 1 << drawn.randrange(8)
        content = bytes(changed)
    elif kind == "cut":
        content = content[:place]
    elif kind == "double":
        content = content[:end] + content[place:end] * drawn.choice([1, 1000]) + content[end:]
    elif kind == "number":
        places = [i for i in range(len(content)) if content[i:i + 1].isdigit() and not content[i - 1:i].isdigit()][:4000]
        if places:
            place = drawn.choice(places)
            end = place
            while end < len(content) and content[end:end + 1] in b"0123456789.eE+-" and content[end:end + 1]:
                end += 1
            content = content[:place] + drawn.choice(NUMBERS).encode() + content[end:]
    elif kind == "nest":
        content = content[:place] + nested(drawn) + content[end:]
    elif kind == "noise":
        content = content[:place] + bytes(drawn.randrange(256) for _ in range(end - place)) + content[end:]
    else:
        content = content[:place] + drawn.choice([b"\x1b]0;x\x07", b"\xff\xfe", b"\0", b"../../etc/passwd", b"%s%n", b"{{ 9 ** 999 }}"]) + content[place:]
    return f"{kind} at {place}", content


def problem(ended):
    if ended.status is None:
        return f"no end within {LIMIT_S} s"
    if ended.status not in STATUSES:
        return f"ended with {ended.status}: {ended.said.strip()[-200:]}"
    if ended.most_bytes > LIMIT_BYTES:
        return f"took {ended.most_bytes >> 20} MiB"
    if "\x1b" in ended.said or "\x07" in ended.said:
        return "a control character of the file reached the terminal"
    if "terminate called" in ended.said:
        return "terminate called"
    if ended.status != 0 and "error: " not in ended.said:
        return f"ended with {ended.status} without an error's line"
    return ""


def trial(drawn, binaries, folder):
    pristine = os.path.join(folder, "pristine")
    if not os.path.exists(pristine):
        os.mkdir(pristine)
        make_files(binaries, pristine)
    words, names = drawn.choice(COMMANDS)
    place = os.path.join(folder, "changed")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(pristine, place)
    name = drawn.choice([name for name in names if os.path.exists(os.path.join(place, name))])
    with open(os.path.join(place, name), "rb") as file:
        content = file.read()
    how, content = change(drawn, content)
    with open(os.path.join(place, name), "wb") as file:
        file.write(content)
    ended = commands.run([os.path.join(binaries, "fullshard"), *words], place, LIMIT_S)
    return [" ".join(words[:2]), name, how], problem(ended)
