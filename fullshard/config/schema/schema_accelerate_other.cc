// SPDX-License-Identifier: Apache-2.0
// Accelerate's remaining sections.
#include "fullshard/config/schema/schema.h"

namespace fullshard::config {
namespace {
using namespace schema;

constexpr auto kNoCompiler = refused("there is no graph compiler");
constexpr auto kNoParallel = refused("there is no tensor, context or sequence parallelism");
constexpr auto kUnusedParallel = differs("without effect while its size is 1");
constexpr auto kOwnFp8 = differs("our own kernels compute; docs/training.md");
constexpr auto kPresentScale = differs("factors are those of the present values");
constexpr auto kNoMsAmp = differs("MS-AMP's; masters and moments stay fp32");
constexpr auto kNoMegatron = refused("Megatron-LM is another engine; use FSDP or DEEPSPEED");

constexpr SchemaKey kOtherAccelerateKeys[] = {
    {"parallelism_config.parallelism_config_dp_replicate_size", integer(1, 65536).loose(), "1",
     "copies of the sharded model", "sharding"},
    {"parallelism_config.parallelism_config_dp_shard_size", integer(1, 65536).loose(), "1",
     "ranks that one copy is sharded over", "sharding"},
    {"parallelism_config.parallelism_config_tp_size", integer(1).loose(), "1",
     "tensor-parallel ranks", "sharding", kNoParallel},
    {"parallelism_config.parallelism_config_cp_size", integer(1).loose(), "1",
     "context-parallel ranks", "sharding", kNoParallel},
    {"parallelism_config.parallelism_config_cp_backend", choice("torch"), "torch",
     "backend of context parallelism", "sharding", kUnusedParallel},
    {"parallelism_config.parallelism_config_cp_comm_strategy", choice("allgather|alltoall"),
     "allgather", "how it communicates", "sharding", kUnusedParallel},
    {"parallelism_config.parallelism_config_sp_size", integer(1).loose(), "1",
     "sequence-parallel ranks", "sharding", kNoParallel},
    {"parallelism_config.parallelism_config_sp_backend", choice("deepspeed"), "deepspeed",
     "backend of sequence parallelism", "sharding", kUnusedParallel},
    {"parallelism_config.parallelism_config_sp_seq_length", integer(1).loose(), "null",
     "length of every sequence", "sharding", kUnusedParallel},
    {"parallelism_config.parallelism_config_sp_seq_length_is_variable", kBooleanWord, "true",
     "lengths may differ", "sharding", kUnusedParallel},
    {"parallelism_config.parallelism_config_sp_attn_implementation", text(), "sdpa",
     "attention of sequence parallelism", "sharding", kUnusedParallel},

    {"fp8_config.backend", any_case("ao|te|msamp"), "null", "fp8 backend", "precision", kOwnFp8},
    {"fp8_config.use_autocast_during_eval", kBooleanWord, "false", "fp8 in evaluation", "precision",
     differs("evaluation computes as training does")},
    {"fp8_config.margin", integer(0).loose(), "0", "margin of the scale", "precision",
     kPresentScale},
    {"fp8_config.interval", integer(1).loose(), "1", "steps between scales", "precision",
     kPresentScale},
    {"fp8_config.format", any_case("HYBRID|E4M3|E5M2"), "HYBRID", "bits", "precision",
     differs("E5M2 for all is refused")},
    {"fp8_config.amax_history_len", integer(1).loose(), "1024", "maxima remembered", "precision",
     kPresentScale},
    {"fp8_config.amax_history_length", integer(1).loose(), "1024", "maxima remembered", "precision",
     kPresentScale},
    {"fp8_config.amax_compute_algo", any_case("max|most_recent"), "most_recent",
     "which maximum counts", "precision", kPresentScale},
    {"fp8_config.amax_compute_algorithm", any_case("max|most_recent"), "most_recent",
     "which maximum counts", "precision", kPresentScale},
    {"fp8_config.override_linear_precision", texts().loose(), "null", "layers that stay higher",
     "precision", differs("products of blocks are fp8, docs/training.md names the exception")},
    {"fp8_config.opt_level", any_case("O1|O2"), "O2", "MS-AMP's level", "precision", kNoMsAmp},
    {"fp8_config.optimization_level", any_case("O1|O2"), "O2", "MS-AMP's level", "precision",
     kNoMsAmp},
    {"fp8_config.enable_fsdp_float8_all_gather", kBooleanWord, "true", "gather in fp8", "precision",
     differs("gathers move bf16")},
    {"fp8_config.pad_inner_dim", kBooleanWord, "true", "pad for fp8", "precision",
     differs("sizes that are not multiples of 16 stay bf16")},

    {"dynamo_config.dynamo_backend",
     any_case("no|eager|aot_eager|inductor|aot_ts_nvfuser|nvprims_nvfuser|cudagraphs|ofi|fx2trt|"
              "onnxrt|tensorrt|aot_torchxla_trace_once|torchxla_trace_once|ipex|tvm|hpu_backend")
         .loose(),
     "no", "torch.compile's backend", "sharding", kNoCompiler},
    {"dynamo_config.dynamo_mode",
     choice("default|reduce-overhead|max-autotune|max-autotune-no-cudagraphs"), "default",
     "torch.compile's mode", "sharding", differs("without effect while dynamo_backend is no")},
    {"dynamo_config.dynamo_use_fullgraph", kBooleanWord, "false", "one graph", "sharding",
     differs("without effect while dynamo_backend is no")},
    {"dynamo_config.dynamo_use_dynamic", kBooleanWord, "false", "dynamic shapes", "sharding",
     differs("without effect while dynamo_backend is no")},
    {"dynamo_config.dynamo_use_regional_compilation", kBooleanWord, "false",
     "compile repeated blocks", "sharding", differs("without effect while dynamo_backend is no")},

    {"mpirun_config.mpirun_hostfile", text(), "null", "hosts for mpirun", "launch"},
    {"mpirun_config.mpirun_ccl", text().loose(), "1", "oneCCL's workers", "launch",
     noted("there is no oneCCL")},
    {"megatron_lm_config", open_map(), "{}", "Megatron-LM's settings", "sharding", kNoMegatron},
};

}  // namespace

std::span<const SchemaKey> accelerate_other_keys() { return kOtherAccelerateKeys; }

}  // namespace fullshard::config
