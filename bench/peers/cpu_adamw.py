# SPDX-License-Identifier: Apache-2.0
"""AdamW on the CPU by PyTorch and DeepSpeed: one JSON line per optimizer.

Usage: cpu_adamw.py --threads N [--parameters 100000000] [--steps 5]
An optimizer that cannot be built here (DeepSpeed compiles its own on first use) gives a line that says why.
"""
import argparse
import json
import os
import statistics
import time


def makers(torch):
    def deepspeed(parameters):
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        return DeepSpeedCPUAdam(parameters, lr=1e-4, weight_decay=0.1, adamw_mode=True)

    def adamw(**how):
        return lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, **how)

    return {"torch AdamW, fused": adamw(fused=True), "torch AdamW, foreach": adamw(foreach=True),
            "DeepSpeedCPUAdam": deepspeed}


def seconds_per_step(torch, make, numel, steps):
    parameter = torch.nn.Parameter(torch.full((numel,), 0.5))
    parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer = make([parameter])
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import torch
    torch.set_num_threads(arguments.threads)
    for name, make in makers(torch).items():
        line = {"what": name, "threads": arguments.threads, "parameters": arguments.parameters}
        try:
            seconds = seconds_per_step(torch, make, arguments.parameters, arguments.steps)
            line["s_per_1e9"] = round(seconds / arguments.parameters * 1e9, 4)
        except Exception as error:  # whatever a peer's build can throw
            line["why_not"] = f"{type(error).__name__}: {str(error)[:200]}"
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
