#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_step.py's step under DeepSpeed on one GPU: the same model, first weights and tokens, and the same line of JSON.

    python3 deepspeed_step.py --model llama-1.1b --stage 3 --seq 2048 --batch 8 --tokens tokens.bin

bf16 with fp32 masters, torch's fused AdamW, clipping at 1; buckets and thresholds are DeepSpeed's defaults.
"""
import argparse
import json
import os
import statistics
import time

import deepspeed
import torch

import train_step


def make_engine(model, stage, batch):
    config = {"train_micro_batch_size_per_gpu": batch, "gradient_clipping": 1.0, "steps_per_print": 10**9,
              "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def train(engine, cut, steps):
    """Seconds and losses of each step."""
    times, losses = [], []
    for step in range(steps):
        rows = cut(step)
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = engine(rows[:, :-1], rows[:, 1:])
        engine.backward(loss)
        engine.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return times, losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-1.1b")
    parser.add_argument("--stage", type=int, default=3, choices=[0, 1, 2, 3])
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tokens", required=True, help="uint16 tokens to read")
    arguments = parser.parse_args()
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"),
                        ("MASTER_PORT", "29556")):
        os.environ.setdefault(name, value)
    deepspeed.init_distributed("nccl")
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = train_step.Model(arguments.model, arguments.seq)
    train_step.initialise(model, "cuda")
    engine = make_engine(model, arguments.stage, arguments.batch)
    torch.cuda.reset_peak_memory_stats()
    cut = train_step.cut_tokens(arguments.tokens, arguments.batch, arguments.seq, "cuda")
    times, losses = train(engine, cut, arguments.steps)
    step = statistics.median(times[min(4, len(times) // 2):])
    print(json.dumps({"model": arguments.model, "mode": f"deepspeed-{arguments.stage}", "step_s": round(step, 4),
                      "tokens_per_s": round(arguments.batch * arguments.seq / step, 1),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                      "first_loss": round(losses[0], 5), "loss": round(losses[-1], 5),
                      "torch": torch.__version__, "deepspeed": deepspeed.__version__}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
