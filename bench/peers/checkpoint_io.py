#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the peers on CPU: PyTorch DCP under FSDP2, torch.save, safetensors, DeepSpeed ZeRO-3 and zero_to_fp32.py, beside the raw disk.

Usage: checkpoint_io.py DIR [--model llama-110m] [--ranks 2] [--reps 3] [--out FILE]: starts itself under torchrun for each part.
Times are from the first to the last rank (a barrier on either side). Files are flushed (fsync) before a save's clock stops and
dropped from the page cache (posix_fadvise) before a read. Memory is the growth of the resident peak (VmHWM, reset
through /proc/self/clear_refs) during the operation, the largest of the ranks; it comes from a run of its own with
MIMALLOC_PURGE_DELAY=0, because torch's ARM wheel allocates through mimalloc, which keeps freed memory resident.
"""
import argparse, gc, json, os, shutil, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))


def status(field): return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(field + ":")) * 1024
def files(path): return [path] if os.path.isfile(path) else [os.path.join(d, f) for d, _, fs in os.walk(path) for f in fs]
def size(path): return sum(os.path.getsize(f) for f in files(path))


def flush(path, drop):
    """Everything under path reaches the disk; then, when asked, leaves the page cache."""
    for f in files(path):
        fd = os.open(f, os.O_RDONLY); os.fsync(fd)
        if drop: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def timed(do, after=lambda: None, world=1):
    """Seconds and the largest growth of resident memory over the ranks."""
    if world > 1: import torch, torch.distributed as dist; dist.barrier()
    gc.collect()
    with open("/proc/self/clear_refs", "w") as f: f.write("5")
    before = status("VmRSS"); t = time.perf_counter()
    do(); after()
    if world > 1: dist.barrier()
    s, grown = time.perf_counter() - t, max(0, status("VmHWM") - before)
    if world > 1: every = [None] * world; dist.all_gather_object(every, grown); grown = max(every)
    return s, grown


def raw_disk(folder, nbytes):
    """(write with fsync, read) in GB/s: 16 MiB blocks, one thread, page cache dropped before the read."""
    block = os.urandom(16 * 2**20); name = os.path.join(folder, f"raw{os.getpid()}"); fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC); t = time.perf_counter()
    for _ in range(nbytes // len(block)): os.write(fd, block)
    os.fsync(fd); w = time.perf_counter() - t; os.close(fd); flush(name, True); fd = os.open(name, os.O_RDONLY); buffer = bytearray(len(block)); t = time.perf_counter()
    while os.readv(fd, [buffer]): pass
    r = time.perf_counter() - t; os.close(fd); n = os.path.getsize(name); os.remove(name)
    return n / w / 1e9, n / r / 1e9


def pytorch(a, part):
    """One process per rank. part: save-load, or reshard (load on this number of ranks what others saved)."""
    import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, get_model_state_dict, set_state_dict, StateDictOptions
    from torch.distributed.fsdp import fully_shard
    from safetensors.torch import save_file, load_file
    import train_step
    torch.set_num_threads(1); dist.init_process_group("gloo"); world, rank = dist.get_world_size(), dist.get_rank()
    model = train_step.Model(a.model, 128); train_step.initialise(model, "cpu")
    for b in model.blocks: fully_shard(b)
    fully_shard(model); opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for q in model.parameters(): q.grad = torch.zeros_like(q)
    opt.step(); opt.zero_grad(); n = sum(q.numel() for q in model.parameters()); fp32 = 4 * n; folder = os.path.join(a.dir, "dcp"); got = []
    def note(what, s, grown, nbytes): got.append(dict(what=what, params=n, bytes=nbytes, ranks=world, value=s, unit="s", rss_growth=grown, fp32=fp32))
    def state(): m, o = get_state_dict(model, opt); return {"model": m, "optim": o}
    for _ in range(a.reps):
        if part == "reshard":
            flush(folder, True); dist.barrier(); s, grown = timed(lambda: (lambda st: (dcp.load(st, checkpoint_id=folder), set_state_dict(model, opt, model_state_dict=st["model"], optim_state_dict=st["optim"])))(state()), world=world)
            note(f"DCP load resharded to {world} rank(s), model + AdamW", s, grown, size(folder)); continue
        if rank == 0:
            shutil.rmtree(a.dir, ignore_errors=True); os.makedirs(a.dir); w, r = raw_disk(a.dir, 3 * fp32)
            got += [dict(what="raw disk write with fsync", bytes=3 * fp32, ranks=1, value=w, unit="GB/s"), dict(what="raw disk read, cold", bytes=3 * fp32, ranks=1, value=r, unit="GB/s")]
        dist.barrier(); speeds = torch.tensor(raw_disk(a.dir, 3 * fp32 // world)); dist.all_reduce(speeds)
        got += [dict(what="raw disk write with fsync, all ranks at once", bytes=3 * fp32, ranks=world, value=speeds[0].item(), unit="GB/s"), dict(what="raw disk read, cold, all ranks at once", bytes=3 * fp32, ranks=world, value=speeds[1].item(), unit="GB/s")]
        s, grown = timed(lambda: dcp.save(state(), checkpoint_id=folder), lambda: flush(folder, False) if rank == 0 else None, world); note("DCP save, FSDP2, model + AdamW", s, grown, size(folder))
        if rank == 0: flush(folder, True)
        s, grown = timed(lambda: (lambda st: (dcp.load(st, checkpoint_id=folder), set_state_dict(model, opt, model_state_dict=st["model"], optim_state_dict=st["optim"])))(state()), world=world); note("DCP load, FSDP2, model + AdamW", s, grown, size(folder))
        full = {}; name = os.path.join(a.dir, "full.pt"); options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        def gathered(): m, o = get_state_dict(model, opt, options=options); full.update(model=m, optim=o)
        s1, g1 = timed(gathered, world=world); note("FSDP2 gather of the full state to rank 0, model + AdamW", s1, g1, 3 * fp32)
        s, grown = timed(lambda: rank == 0 and torch.save(full, name), lambda: rank == 0 and flush(name, False), world); note("torch.save of the gathered full state, model + AdamW", s, grown, size(name)); full.clear()
        if rank == 0:
            flush(name, True); s, grown = timed(lambda: torch.load(name)); note("torch.load of the full state, model + AdamW", s, grown, size(name)); os.remove(name)
        weights = get_model_state_dict(model, options=options); name = os.path.join(a.dir, "model.safetensors")
        if rank == 0:
            one = {k: v for k, v in weights.items() if k != "head.weight"}
            s, grown = timed(lambda: save_file(one, name), lambda: flush(name, False)); note("safetensors save_file, model only, rank 0", s, grown, size(name))
            flush(name, True); s, grown = timed(lambda: {k: v.clone() for k, v in load_file(name).items()}); note("safetensors load_file and copy, model only, rank 0", s, grown, size(name)); one = None
        weights = None; dist.barrier()
    if rank == 0: print("RESULT" + json.dumps(got), flush=True)
    dist.destroy_process_group()


def deepspeed(a):
    """ZeRO-3 save_checkpoint and load_checkpoint, fp32 training state."""
    import torch, torch.distributed as dist, deepspeed as ds
    import train_step
    torch.set_num_threads(1); ds.init_distributed("gloo"); world, rank = dist.get_world_size(), dist.get_rank()
    model = train_step.Model(a.model, 128); train_step.initialise(model, "cpu"); n = sum(q.numel() for q in model.parameters()); folder = os.path.join(a.dir, "ds"); got = []
    engine, *_ = ds.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9})
    x = torch.randint(0, 32000, (1, 33)); loss = engine(x[:, :-1], x[:, 1:]); engine.backward(loss); engine.step()
    for _ in range(a.reps):
        if rank == 0: shutil.rmtree(folder, ignore_errors=True)
        s, grown = timed(lambda: engine.save_checkpoint(folder, tag="step1"), lambda: flush(folder, False) if rank == 0 else None, world); got.append(dict(what="DeepSpeed ZeRO-3 save_checkpoint (flushed), model + AdamW", params=n, bytes=size(folder), ranks=world, value=s, unit="s", rss_growth=grown, fp32=4 * n))
        if rank == 0: flush(folder, True)
        s, grown = timed(lambda: engine.load_checkpoint(folder, tag="step1"), world=world); got.append(dict(what="DeepSpeed ZeRO-3 load_checkpoint, model + AdamW", params=n, bytes=size(folder), ranks=world, value=s, unit="s", rss_growth=grown, fp32=4 * n))
    if rank == 0: print("RESULT" + json.dumps(got), flush=True)
    dist.destroy_process_group()


def start(a, part, ranks):
    """One run for the times, one for the memory."""
    found = launch(a, part, ranks, a.reps, {}); memory = {g["what"]: g["rss_growth"] for g in launch(a, part, ranks, 1, {"MIMALLOC_PURGE_DELAY": "0"}) if "rss_growth" in g}
    return [dict(g, rss_growth=memory.get(g["what"])) for g in found]


def launch(a, part, ranks, reps, more):
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR", DS_ACCELERATOR="cpu", PYTHONPATH=HERE, **more)
    r = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), os.path.abspath(__file__), a.dir, "--model", a.model, "--reps", str(reps), "--part", part], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = [x for x in r.stdout.splitlines() if "RESULT" in x]
    if not found: return [dict(what=f"checkpoint part {part}", ranks=ranks, value=None, unit="s", note=r.stderr[-1500:])]
    return json.loads(found[-1].split("RESULT", 1)[1])


def child(command):
    """Seconds, peak resident bytes and, on failure, the last error of a process."""
    log = os.path.join(HERE, f".{os.getpid()}.log"); t = time.perf_counter()
    with open(log, "w") as f: p = subprocess.Popen(command, env=dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1"), stdout=f, stderr=f)
    _, code, use = os.wait4(p.pid, 0); p.returncode = code; s = time.perf_counter() - t; text = open(log).read(); os.remove(log); at = text.rfind("Error:")
    return s, use.ru_maxrss * 1024, " ".join(text[max(0, at - 20):at + 260].split()) if code else ""


def zero_to_fp32(a, n):
    """The script that DeepSpeed leaves in the folder, as a process of its own; its peak memory less that of the imports alone."""
    got = []; folder = os.path.join(a.dir, "ds"); script = os.path.join(folder, "zero_to_fp32.py"); _, bare, _ = child([sys.executable, script, "--help"])
    for form in ([], ["--safe_serialization"]):
        for _ in range(a.reps):
            out = os.path.join(a.dir, "fp32"); shutil.rmtree(out, ignore_errors=True); flush(folder, True); s, peak, error = child([sys.executable, script, folder, out, *form]); flush(out, False)
            got.append(dict(what="DeepSpeed zero_to_fp32.py" + (" --safe_serialization" if form else ""), params=n, bytes=size(out), ranks=1, value=None if error else s, unit="s", rss_growth=peak - bare, fp32=4 * n, **({"note": error} if error else {})))
            if error: break
    return got


def main():
    p = argparse.ArgumentParser(); p.add_argument("dir"); p.add_argument("--model", default="llama-110m"); p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--reps", type=int, default=3); p.add_argument("--out", default="/dev/stdout"); p.add_argument("--part", default=""); p.add_argument("--only", default=""); p.add_argument("--keep", action="store_true")
    a = p.parse_args()
    if a.part: return deepspeed(a) if a.part == "deepspeed" else pytorch(a, a.part)
    got = []
    if a.only != "deepspeed": got += start(a, "save-load", a.ranks) + start(a, "reshard", 1)
    if a.only != "pytorch":
        found = start(a, "deepspeed", a.ranks); got += found
        if found[0]["value"]: got += zero_to_fp32(a, found[0]["params"])
    groups = {}
    for g in got: groups.setdefault((g["what"], g["ranks"]), []).append(g)
    for (what, ranks), gs in groups.items():
        g = gs[0]; vals = [x["value"] for x in gs if x["value"]]; v = statistics.median(vals) if vals else None
        line = dict(what=what, params=g.get("params"), bytes=g.get("bytes"), ranks=ranks, value=v and round(v, 3), unit=g["unit"], repetitions=len(vals), note=g.get("note", f"runs {[round(x, 3) for x in vals]}"))
        if g["unit"] == "s" and v:
            grown = max(x["rss_growth"] or 0 for x in gs)
            line.update(gb_per_s=round(g["bytes"] / v / 1e9, 3), rss_growth_bytes=int(grown), rss_over_fp32=round(grown / g["fp32"], 2))
            if "zero_to_fp32" in what: line["note"] += "; the whole process with its imports; rss less that of the imports"
        with open(a.out, "a") as f: f.write(json.dumps(line) + "\n")
    if not a.keep: shutil.rmtree(a.dir, ignore_errors=True)


if __name__ == "__main__": main()
