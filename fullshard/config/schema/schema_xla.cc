// SPDX-License-Identifier: Apache-2.0
// The settings of PyTorch/XLA's FSDP, which Accelerate's and the Trainer's files share.
#include "fullshard/config/schema/schema.h"

namespace fullshard::config {
namespace {
using namespace schema;

constexpr std::string_view kXlaDtypes =
    "float32=torch.float32=fp32|float16=torch.float16=fp16|bfloat16=torch.bfloat16=bf16";
constexpr auto kOnlyXla = differs("has a meaning for XLA only; named in a warning");

constexpr SchemaKey kXlaKeys[] = {
    {"fsdp_config.xla_fsdp_settings.compute_dtype", choice(kXlaDtypes), "null", "the compute dtype",
     "precision"},
    {"fsdp_config.xla_fsdp_settings.buffer_dtype", choice(kXlaDtypes), "null",
     "dtype of floating buffers", "precision"},
    {"fsdp_config.xla_fsdp_settings.reshard_after_forward", kBooleanWord, "true",
     "release parameters between forward and backward", "sharding"},
    {"fsdp_config.xla_fsdp_settings.fp32_reduce_scatter", kBooleanWord, "false",
     "send gradients in fp32", "precision"},
    {"fsdp_config.xla_fsdp_settings.flatten_parameters", kBooleanWord, "false",
     "one flat tensor per module", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.execute_sharding_on_init", kBooleanWord, "true",
     "shard at once", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.optimization_barrier_in_forward", kBooleanWord, "true",
     "keep XLA from merging gathers", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.optimization_barrier_in_backward", kBooleanWord, "true",
     "keep XLA from merging gathers", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.mark_step_on_finalization", kBooleanWord, "false",
     "cut the graph after backward", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.mark_step_on_freeing", kBooleanWord, "false",
     "cut the graph after a release", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.disable_reshard_on_root", kBooleanWord, "true",
     "the root stays gathered", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.sharding_groups", texts().loose(), "null", "groups of ranks",
     "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.sharding_rank", integer(0).loose(), "null",
     "rank inside a group", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.sharding_world_size", integer(1).loose(), "null",
     "size of a group", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.shard_param_on_dim_0", kBooleanWord, "false", "cut along rows",
     "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.pin_layout_in_collective_ops", kBooleanWord, "true",
     "fix the layout of collectives", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.auto_wrap_policy", text(), "null", "which modules are units",
     "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.auto_wrapper_callable", text(), "null", "a Python function",
     "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings.param_init_fn", text(), "null", "a Python function", "xla",
     kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._shard_size_multiple", integer(1).loose(), "128",
     "what shards are padded to", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._use_xla_patched_linear", kBooleanWord, "true", "XLA's linear",
     "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_dummy_forward_pass", kBooleanWord, "false",
     "for debugging", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_msg", text(), "null", "for debugging", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_print", kBooleanWord, "false", "for debugging", "xla",
     kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_dummy_all_gather_op", kBooleanWord, "false",
     "for debugging", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_dummy_all_reduce_op", kBooleanWord, "false",
     "for debugging", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_dummy_reduce_scatter_op", kBooleanWord, "false",
     "for debugging", "xla", kOnlyXla},
    {"fsdp_config.xla_fsdp_settings._debug_dummy_optimization_barrier_op", kBooleanWord, "false",
     "for debugging", "xla", kOnlyXla},
};

}  // namespace

std::span<const SchemaKey> xla_keys() { return kXlaKeys; }

}  // namespace fullshard::config
