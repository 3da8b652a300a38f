#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training step of a Llama- or GPT-2-style model under PyTorch, the peer that Fullshard is measured beside.

Prints one JSON line: tokens/s (median over steps), peak device memory (on CPU: peak resident memory of each rank, and the peak of
its proportional set size during one more step that is not timed), MFU, loss of the first and of the last step.
Modes: plain (no sharding), fsdp2 (fully_shard per block and root), fsdp1, ddp; each with --compile and --offload. --float8 needs torchao.
fsdp1 needs a GPU: since torch 2.13 it refuses the CPU ("FSDP needs a non-CPU accelerator device").
Several ranks: start it with `python3 -m torch.distributed.run --nproc_per_node N`. On CPU the backend is gloo.
Every mode starts from the same weights (normal, std 0.02, rounded to bf16; norms at 1; biases at 0; one seed per parameter), and rank
0 always reads the same data. So rank 0's first loss is the same in every mode, and its last loss in every mode with the same number of
ranks. --tokens FILE reads uint16 tokens as one long row, cut as `fullshard train --order sequential` cuts it, and --export FOLDER
writes the first weights as Hugging Face does: with both, `fullshard train --model FOLDER` has the same losses.
"""
import argparse, json, os, statistics, threading, time
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
import tensor_file

CONFIGS = {  # layers, width, heads, kv heads, ffn, vocab, tied, gated (llama) or gelu (gpt2)
    "gpt2-124m": (12, 768, 12, 12, 3072, 50304, True, False),
    "gpt2-350m": (24, 1024, 16, 16, 4096, 50304, True, False),
    "llama-15m": (6, 288, 6, 6, 768, 32000, True, True),
    "llama-110m": (12, 768, 12, 12, 2048, 32000, True, True),
    "llama-1.1b": (22, 2048, 32, 4, 5632, 32000, False, True),
    "llama-3b": (28, 3072, 24, 8, 8192, 128256, True, True),
    "llama-8b": (32, 4096, 32, 8, 14336, 128256, False, True),
}


class Attention(nn.Module):
    def __init__(self, d, h, kv, bias):
        super().__init__()
        self.h, self.kv, self.hd = h, kv, d // h
        self.q = nn.Linear(d, d, bias=bias); self.k = nn.Linear(d, kv * self.hd, bias=bias)
        self.v = nn.Linear(d, kv * self.hd, bias=bias); self.o = nn.Linear(d, d, bias=bias)

    def forward(self, x, rope):
        b, s, d = x.shape
        q = self.q(x).view(b, s, self.h, self.hd).transpose(1, 2)
        k = self.k(x).view(b, s, self.kv, self.hd).transpose(1, 2)
        v = self.v(x).view(b, s, self.kv, self.hd).transpose(1, 2)
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.h != self.kv)
        return self.o(y.transpose(1, 2).reshape(b, s, d))


def rotate(x, rope):
    cos, sin = rope
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def make_norm(d, gated):
    return nn.RMSNorm(d, eps=1e-6) if gated else nn.LayerNorm(d, eps=1e-5)


class Block(nn.Module):
    def __init__(self, d, h, kv, f, gated):
        super().__init__()
        self.n1, self.n2, self.att, self.gated = make_norm(d, gated), make_norm(d, gated), Attention(d, h, kv, not gated), gated
        self.up = nn.Linear(d, f, bias=not gated); self.down = nn.Linear(f, d, bias=not gated)
        if gated: self.gate = nn.Linear(d, f, bias=False)

    def forward(self, x, rope):
        x = x + self.att(self.n1(x), rope)
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h) if self.gated else F.gelu(self.up(h), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, name, seq):
        super().__init__()
        L, d, h, kv, f, v, tied, gated = CONFIGS[name]
        self.gated, self.hd, self.seq = gated, d // h, seq
        self.emb = nn.Embedding(v, d)
        self.pos = None if gated else nn.Embedding(seq, d)
        self.blocks = nn.ModuleList(Block(d, h, kv, f, gated) for _ in range(L))
        self.norm = make_norm(d, gated)
        self.head = nn.Linear(d, v, bias=False)
        if tied: self.head.weight = self.emb.weight

    def forward(self, ids, labels):
        x = self.emb(ids); rope = None
        if self.gated:
            t = torch.arange(ids.shape[1], device=ids.device).float()
            w = 1.0 / 10000 ** (torch.arange(0, self.hd, 2, device=ids.device).float() / self.hd)
            a = torch.outer(t, w); rope = (a.cos(), a.sin())
        else:
            x = x + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for b in self.blocks: x = b(x, rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


@torch.no_grad()
def initialise(model, device):
    """The same values for every mode and world size; a sharded parameter (DTensor) takes its own part of them."""
    for i, (name, q) in enumerate(model.named_parameters()):
        full = torch.empty(q.shape, device=device)
        if name.endswith("bias"): full.zero_()
        elif q.dim() == 1: full.fill_(1)
        else: full.copy_(full.normal_(std=0.02, generator=torch.Generator(device).manual_seed(1000 + i)).bfloat16())
        if hasattr(q, "placements"):
            from torch.distributed.tensor import distribute_tensor
            q.to_local().copy_(distribute_tensor(full, q.device_mesh, q.placements, src_data_rank=None).to_local())
        else: q.copy_(full)


def hugging_face(name, model):
    """config.json and the tensors by the names of transformers."""
    L, d, h, kv, f, v, tied, gated = CONFIGS[name]
    own = dict(model.named_parameters()); out = {}
    if gated:
        config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=d, intermediate_size=f,
                      max_position_embeddings=model.seq, num_attention_heads=h, num_hidden_layers=L, num_key_value_heads=kv, head_dim=d // h,
                      rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=tied, vocab_size=v, bos_token_id=1, eos_token_id=2)
        names = {"n1": "input_layernorm", "n2": "post_attention_layernorm", "att.q": "self_attn.q_proj", "att.k": "self_attn.k_proj",
                 "att.v": "self_attn.v_proj", "att.o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
        for i in range(L):
            for ours, theirs in names.items(): out[f"model.layers.{i}.{theirs}.weight"] = own[f"blocks.{i}.{ours}.weight"]
        out["model.embed_tokens.weight"], out["model.norm.weight"] = own["emb.weight"], own["norm.weight"]
        if not tied: out["lm_head.weight"] = own["head.weight"]
        return config, out
    config = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", activation_function="gelu_new", n_embd=d, n_head=h, n_layer=L,
                  n_positions=model.seq, layer_norm_epsilon=1e-5, vocab_size=v, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
                  tie_word_embeddings=True, bos_token_id=50256, eos_token_id=50256)
    for i in range(L):
        block = f"transformer.h.{i}."
        for part in ("weight", "bias"):
            turn = lambda t: t.t() if part == "weight" else t  # transformers keeps these products the other way round
            joined = torch.cat([own[f"blocks.{i}.att.{x}.{part}"] for x in "qkv"])
            out[block + "attn.c_attn." + part] = turn(joined)
            for ours, theirs in {"att.o": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}.items():
                out[block + theirs + "." + part] = turn(own[f"blocks.{i}.{ours}.{part}"])
            for ours, theirs in {"n1": "ln_1", "n2": "ln_2"}.items(): out[block + theirs + "." + part] = own[f"blocks.{i}.{ours}.{part}"]
    out["transformer.wte.weight"], out["transformer.wpe.weight"] = own["emb.weight"], own["pos.weight"]
    for part in ("weight", "bias"): out["transformer.ln_f." + part] = own["norm." + part]
    return config, out


@torch.no_grad()
def export(name, model, folder):
    """A folder of transformers with one safetensors file in bf16, which holds the first weights exactly."""
    config, tensors = hugging_face(name, model)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file: json.dump(config, file)
    tensor_file.write(tensors, os.path.join(folder, "model.safetensors"), torch.bfloat16)


def cut_tokens(path, batch, seq, device):
    """The batches of fullshard's --order sequential: sequence k reads tokens kS to kS+S and is asked for the next ones."""
    row = torch.from_numpy(__import__("numpy").fromfile(path, "<u2").astype("int64"))
    def cut(step):
        begin = step * batch * seq
        if begin + batch * seq + 1 > len(row): raise SystemExit(f"{path}: too few tokens for step {step}")
        return torch.stack([row[begin + k * seq:begin + (k + 1) * seq + 1] for k in range(batch)]).to(device)
    return cut


class PeakSampler:
    """The largest proportional set size while it runs, as bench/memory_probe.h takes it."""
    def __enter__(self):
        self.peak, self.running = 0, True
        self.thread = threading.Thread(target=self.sample); self.thread.start()
        return self

    def sample(self):
        while self.running:
            with open("/proc/self/smaps_rollup") as f: kib = next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
            self.peak = max(self.peak, kib * 1024); time.sleep(0.005)

    def __exit__(self, *_):
        self.running = False; self.thread.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="llama-1.1b"); p.add_argument("--mode", default="fsdp2", choices=["plain", "fsdp2", "fsdp1", "ddp"])
    p.add_argument("--compile", action="store_true"); p.add_argument("--offload", action="store_true"); p.add_argument("--recompute", action="store_true")
    p.add_argument("--float8", choices=["tensorwise", "rowwise"], help="blocks in torchao's float8"); p.add_argument("--graphs", action="store_true", help="compile the whole model, with CUDA graphs")
    p.add_argument("--seq", type=int, default=2048); p.add_argument("--batch", type=int, default=8); p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--steps", type=int, default=12); p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--dtype", default="bf16", choices=["bf16", "fp32"]); p.add_argument("--threads", type=int, default=0)
    p.add_argument("--tokens", help="uint16 tokens to read"); p.add_argument("--export", help="write the first weights to this folder and end")
    a = p.parse_args()
    if a.threads: torch.set_num_threads(a.threads)
    cuda = a.device == "cuda"
    for k, v in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29555")): os.environ.setdefault(k, v)
    if cuda: torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    if a.mode != "plain": dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    world = dist.get_world_size() if dist.is_initialized() else 1; rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(0); torch.set_float32_matmul_precision("high")
    with torch.device("meta" if a.mode == "fsdp2" else a.device): model = Model(a.model, a.seq)
    if a.mode != "fsdp2": initialise(model, a.device)
    if a.export: return export(a.model, model, a.export)
    mp = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    if a.recompute:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        for i in range(len(model.blocks)): model.blocks[i] = checkpoint_wrapper(model.blocks[i])
    if a.float8:
        from torchao.float8 import convert_to_float8_training, Float8LinearConfig
        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(a.float8), module_filter_fn=lambda m, name: "head" not in name)
    if a.graphs: model = torch.compile(model, mode="reduce-overhead")
    if a.compile:
        for i in range(len(model.blocks)): model.blocks[i].compile()
    if a.mode == "fsdp2":
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy, CPUOffloadPolicy, OffloadPolicy
        from torch.distributed.device_mesh import init_device_mesh
        kw = dict(mesh=init_device_mesh(a.device, (world,)), mp_policy=MixedPrecisionPolicy(param_dtype=mp, reduce_dtype=torch.float32),
                  offload_policy=CPUOffloadPolicy() if a.offload else OffloadPolicy())
        for b in model.blocks: fully_shard(b, **kw)
        fully_shard(model, **kw)
        model.to_empty(device="cpu" if a.offload else a.device)
        initialise(model, a.device)
    elif a.mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, CPUOffload
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(param_dtype=mp, reduce_dtype=torch.float32),
                     cpu_offload=CPUOffload(a.offload), use_orig_params=True, device_id=torch.cuda.current_device() if cuda else None)
    elif a.mode == "ddp": model = nn.parallel.DistributedDataParallel(model)
    fused = True
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    vocab = CONFIGS[a.model][5]; g = torch.Generator().manual_seed(1 + rank)
    data = [] if a.tokens else [torch.randint(0, vocab, (a.batch, a.seq + 1), generator=g).to(a.device) for _ in range(4)]
    cut = cut_tokens(a.tokens, a.batch, a.seq, a.device) if a.tokens else lambda k: data[k % 4]
    cast = lambda: torch.autocast(a.device, mp, enabled=a.mode in ("plain", "ddp") and mp != torch.float32)
    n = sum(q.numel() for q in model.parameters()); L, d = CONFIGS[a.model][:2]
    if cuda: torch.cuda.reset_peak_memory_stats()
    times = []; losses = []

    def one_step(s):
        batches = [cut(s * a.accumulate + k if a.tokens else s + k) for k in range(a.accumulate)]
        if cuda: torch.cuda.synchronize()
        t = time.perf_counter()
        for x in batches:
            if a.graphs: torch.compiler.cudagraph_mark_step_begin()
            with cast(): loss = model(x[:, :-1], x[:, 1:])
            losses.append(loss.detach().clone())
            (loss / a.accumulate).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(); opt.zero_grad(set_to_none=True)
        if cuda: torch.cuda.synchronize()
        return time.perf_counter() - t

    for s in range(a.steps):
        times.append(one_step(s))
        if s == 0: ready = time.time()
    first, last, pss = losses[0].item(), losses[-1].item(), [0]
    if not cuda:
        with PeakSampler() as sampler: one_step(0)
        pss = [sampler.peak]
    med = statistics.median(times[min(4, len(times) // 2):]); tok = a.batch * a.seq * a.accumulate
    v = n if CONFIGS[a.model][6] else n - CONFIGS[a.model][5] * d  # matmul parameters: a tied embedding is used as the head, an untied one is not
    flop = 6 * v + 6 * L * d * a.seq  # causal attention counted as half
    import resource
    rss = [round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)]
    if world > 1: every = [None] * world; dist.all_gather_object(every, rss[0]); rss = every
    if world > 1: every = [None] * world; dist.all_gather_object(every, pss[0]); pss = every
    out = dict(model=a.model, mode=a.mode, compile=a.compile, offload=a.offload, recompute=a.recompute, world=world, device=a.device, dtype=a.dtype, seq=a.seq,
               batch=a.batch, accumulate=a.accumulate, params=n, step_s=round(med, 4), tokens_per_s=round(tok / med, 1), tflops=round(flop * tok / med / 1e12, 2),
               peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else max(rss), rss_gib=rss, pss_peak=pss,
               first_loss=round(first, 5), loss=round(last, 5), torch=torch.__version__)
    if "PEER_START" in os.environ: out["to_first_step_s"] = round(ready - float(os.environ["PEER_START"]), 2)
    if rank == 0: print(json.dumps(out), flush=True)
    if dist.is_initialized(): dist.destroy_process_group()


if __name__ == "__main__": main()
