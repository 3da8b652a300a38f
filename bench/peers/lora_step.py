# SPDX-License-Identifier: Apache-2.0
"""Steps of LoRA by PEFT and transformers on one GPU, for bench/lora.py: Llama 8B, bf16 base, adapters on all layers of the
blocks in fp32 under autocast, as PEFT makes them. Prints one line of JSON: median seconds of a step, and the peak in GiB."""
import argparse
import json
import statistics
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_model(arguments):
    config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                         num_key_value_heads=8, max_position_embeddings=8192, use_cache=False, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        base = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model = get_peft_model(base, LoraConfig(r=arguments.rank, lora_alpha=2 * arguments.rank, target_modules=PROJECTIONS,
                                            task_type="CAUSAL_LM")).train()
    if arguments.recompute:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.enable_input_require_grads()
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = make_model(arguments)
    run = torch.compile(model) if arguments.compile else model
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    tokens = torch.randint(5, 32000, (arguments.batch, arguments.seq), device="cuda")
    seconds = []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"step_s": statistics.median(seconds[arguments.warm_up:]), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}))


if __name__ == "__main__":
    main()
