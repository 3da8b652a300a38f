# SPDX-License-Identifier: Apache-2.0
"""Hands what `fullshard config convert` writes to Accelerate and DeepSpeed, and records what they say.

    PYTHONPATH=... python tools/check_conversions.py build/bin/fullshard tests/fixtures/config

The files named below, of tests/fixtures/config/good, are converted for four ranks in both directions, into converted/;
converted/accepted.json gets, for the versions that this Python has, "accepted" or the first line of the refusal,
and what each made of the file. Records of other versions stay. The test Convert.WritesWhatThePeersAccepted compares.
Neither program needs a GPU for it. Words "auto" that the Trainer replaces are replaced as it does.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

RANKS = 4
SOURCES = ["acc_deepspeed_keys.yaml", "acc_fsdp1.yaml", "acc_fsdp2.yaml", "acc_groups.yaml", "acc_hybrid.yaml",
           "acc_multi_cpu.yaml", "ds_mics.json", "ds_zero0.json", "ds_zero2_auto.json", "ds_zero3_auto.json",
           "tr_words.json"]


def convert(fullshard, source, target):
    return subprocess.run(
        [fullshard, "config", "convert", source, "--to", target, "--ranks", str(RANKS)],
        check=True, capture_output=True, text=True).stdout


def ask_accelerate(path):
    """As `accelerate launch --config_file PATH script.py`, up to the start of processes."""
    import accelerate
    import torch
    from accelerate.commands import launch
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

    args = launch.launch_command_parser().parse_args(["--config_file", str(path), "script.py"])
    args, _, _ = launch._validate_launch_command(args)
    if args.use_cpu or args.num_processes == 1:
        _, environment = prepare_simple_launcher_cmd_env(args)
    else:
        environment = prepare_multi_gpu_env(args)
    said = {"num_processes": args.num_processes, "mixed_precision": environment["ACCELERATE_MIXED_PRECISION"]}
    if not args.use_fsdp:
        return said
    names = ("FSDP_", "PARALLELISM_CONFIG_")
    said |= {key: value for key, value in sorted(environment.items()) if key.startswith(names)}
    # Version 1 asks for the number of the present GPU, and for nothing else of it.
    accelerate.utils.dataclasses.is_cuda_available = lambda *_: True
    torch.cuda.current_device = lambda: 0
    kept = dict(os.environ)
    os.environ.update(environment)
    try:
        plugin = FullyShardedDataParallelPlugin()
        said["plugin_strategy"] = str(plugin.sharding_strategy or plugin.reshard_after_forward)
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return said


def ask_deepspeed(path):
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    comm.get_world_size = lambda *_: RANKS
    comm.is_initialized = lambda: True
    comm.get_rank = lambda *_: 0
    trainer = {"train_batch_size": 8 * RANKS, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1,
               "gradient_clipping": 1.0}
    config = json.loads(path.read_text())
    for key, value in trainer.items():
        if config.get(key) == "auto":
            config[key] = value
    read = DeepSpeedConfig(config)
    said = {"stage": int(read.zero_config.stage), "train_batch_size": read.train_batch_size}
    if getattr(read, "mics_shard_size", -1) > 0:
        said["mics_shard_size"] = read.mics_shard_size
    return said


def outcome(ask, path):
    try:
        return {"outcome": "accepted", "read": ask(path)}
    except Exception as problem:
        return {"outcome": f"{type(problem).__name__}: {problem}".splitlines()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fullshard")
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    out = options.folder / "converted"
    out.mkdir(exist_ok=True)
    record_file = out / "accepted.json"
    record = json.loads(record_file.read_text()) if record_file.exists() else {}

    kinds = []
    try:
        import accelerate
        kinds.append((f"accelerate {accelerate.__version__.strip()}", "accelerate", "yaml", ask_accelerate))
    except ImportError:
        pass
    try:
        import deepspeed
        kinds.append((f"deepspeed {deepspeed.__version__.strip()}", "deepspeed", "json", ask_deepspeed))
    except ImportError:
        pass
    if not kinds:
        sys.exit("error: neither accelerate nor deepspeed can be imported")
    for version, target, ending, ask in kinds:
        record[version] = {}
        for source in (options.folder / "good" / name for name in SOURCES):
            path = out / f"{source.stem}.{ending}"
            path.write_text(convert(options.fullshard, source, target))
            record[version][path.name] = outcome(ask, path)
    record_file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
