#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of the PyTorch peers on CPU: plain, two plain processes at once (the contention floor), ddp, fsdp2.

Usage: cpu_steps.py [--reps 3] [--out FILE] [--raw FILE]. One thread per rank; the repetitions go round all the lines, so that a
slow minute of the machine hits every line alike. Appends one JSON line per measurement (median of the repetitions) to FILE.
"""
import argparse, json, os, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {"llama-15m": ["--seq", "256", "--batch", "4", "--steps", "6"], "llama-110m": ["--seq", "128", "--batch", "1", "--steps", "5"]}
LINES = [("plain", 1, []), ("plain", 2, []), ("ddp", 2, []), ("fsdp2", 2, []), ("fsdp2", 2, ["--recompute"])]


def measure(model, mode, ranks, extra):
    """Rank 0's line; for two plain processes the mean of both."""
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR")
    args = [os.path.join(HERE, "train_step.py"), "--model", model, "--mode", mode, "--dtype", "fp32", "--threads", "1", *MODELS[model], *extra]
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", str(ranks)] if mode != "plain" else []
    count = ranks if mode == "plain" else 1
    started = [subprocess.Popen([sys.executable, *launch, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(count)]
    found = [json.loads(q.communicate()[0].strip().splitlines()[-1]) for q in started]
    one = found[0]
    one["step_s"] = statistics.mean(f["step_s"] for f in found); one["rss_gib"] = [r for f in found for r in f["rss_gib"]]
    one["pss_peak"] = [r for f in found for r in f["pss_peak"]]
    return one


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--reps", type=int, default=3); p.add_argument("--out", default="/dev/stdout"); p.add_argument("--raw", default="/dev/null")
    a = p.parse_args(); got = {}
    for model in MODELS:
        for rep in range(a.reps):
            for mode, ranks, extra in LINES:
                r = measure(model, mode, ranks, extra); got.setdefault((model, mode, ranks, tuple(extra)), []).append(r)
                with open(a.raw, "a") as f: f.write(json.dumps(dict(r, processes=ranks, rep=rep)) + "\n")
        floor = None
        for mode, ranks, extra in LINES:
            runs = got[model, mode, ranks, tuple(extra)]; r = runs[0]
            step = statistics.median(x["step_s"] for x in runs)
            if mode == "plain" and ranks == 2: floor = step
            name = {("plain", 1): "plain", ("plain", 2): "two plain processes at once (contention floor)"}.get((mode, ranks), mode) + (" with recompute" if extra else "")
            line = dict(what=f"train step {model} fp32 seq {r['seq']} batch {r['batch']} per rank: PyTorch {name}", params=r["params"], ranks=ranks, value=round(step, 4),
                        unit="s/step", repetitions=len(runs), tokens_per_s_per_rank=round(r["batch"] * r["seq"] / step, 1),
                        ratio_to_floor=round(step / floor, 3) if floor else None, peak_rss_gib=max(statistics.median(x["rss_gib"][k] for x in runs) for k in range(len(r["rss_gib"]))),
                        first_loss=r["first_loss"], last_loss=r["loss"], note=f"torch {r['torch']}, 1 thread per rank, AdamW fused, clip 1.0, per run the median of the last steps; runs {[round(x['step_s'], 4) for x in runs]}")
            with open(a.out, "a") as f: f.write(json.dumps(line) + "\n")


if __name__ == "__main__": main()
