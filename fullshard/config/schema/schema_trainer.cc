// SPDX-License-Identifier: Apache-2.0
// TrainingArguments' fsdp and fsdp_config, of transformers 4 and 5. A leading fsdp_ is accepted.
#include "fullshard/config/schema/schema.h"

namespace fullshard::config {
namespace {
using namespace schema;

constexpr auto kTrainerOffload =
    differs("without effect on a CPU, whose memory holds everything already");

constexpr SchemaKey kTrainerKeys[] = {
    {"fsdp", texts().loose(), "null",
     "true, or words: full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, "
     "offload, auto_wrap",
     "sharding"},
    {"fsdp_config.version", integer(1, 2).loose(), "2", "FSDP version of the keys", "sharding"},
    {"fsdp_config.reshard_after_forward",
     any_case("full_shard=1=true|shard_grad_op=2=false|no_shard=3|hybrid_shard=4|"
              "hybrid_shard_zero2=5")
         .loose(),
     "full_shard", "the strategy", "sharding", kHonoured, "1"},
    {"fsdp_config.reshard_after_forward", kBooleanWord, "true",
     "release parameters between forward and backward", "sharding", kHonoured, "2"},
    {"fsdp_config.cpu_offload", kBooleanWord, "false",
     "parameters, gradients and the step in host memory", "offload", kTrainerOffload},
    {"fsdp_config.auto_wrap_policy", any_case("TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP|NO_WRAP"),
     "TRANSFORMER_BASED_WRAP", "which modules are units", "wrap"},
    {"fsdp_config.transformer_layer_cls_to_wrap", texts(), "null",
     "class names of units; unset: the model's own blocks; embedding and head of a large "
     "vocabulary are units too",
     "wrap"},
    {"fsdp_config.min_num_params", computed(0).loose(), "0",
     "modules with at least this many parameters are units", "wrap"},
    {"fsdp_config.state_dict_type",
     any_case("FULL_STATE_DICT=1|LOCAL_STATE_DICT=2|SHARDED_STATE_DICT=3").loose(),
     "FULL_STATE_DICT", "what a checkpoint holds: FULL_STATE_DICT adds the whole weights to it",
     "checkpoint"},
    {"fsdp_config.cpu_ram_efficient_loading", kBooleanWord, "false",
     "each rank reads only what it owns of a pretrained model", "sharding",
     noted("each rank always reads only what it owns", "true")},
    {"fsdp_config.activation_checkpointing", kBooleanWord, "false",
     "compute activations again in backward", "recompute"},
    {"fsdp_config.forward_prefetch", kBooleanWord, "false",
     "gather the next unit during this one's forward", "sharding"},
    {"fsdp_config.backward_prefetch",
     any_case("NO_PREFETCH|BACKWARD_PRE=1|BACKWARD_POST=2").loose(), "NO_PREFETCH",
     "gather the next unit before or after this one's backward", "sharding", kHonoured, "1"},
    {"fsdp_config.backward_prefetch",
     any_case("NO_PREFETCH|BACKWARD_PRE=1|BACKWARD_POST=2").loose(), "BACKWARD_PRE",
     "gather the next unit before or after this one's backward", "sharding",
     differs("not a setting of version 2, but honoured as meant"), "2"},
    {"fsdp_config.use_orig_params", kBooleanWord, "true", "parameters keep their names and shapes",
     "sharding", noted("they always do")},
    {"fsdp_config.sync_module_states", kBooleanWord, "true",
     "take rank 0's parameters and buffers at the start", "sharding"},
    {"fsdp_config.limit_all_gathers", kBooleanWord, "true", "bound the gathers in flight",
     "sharding"},
    {"fsdp_config.ignored_modules", text(), "null",
     "regular expression of module paths that are left alone", "wrap"},
    {"fsdp_config.xla", kBooleanWord, "false", "run through PyTorch/XLA", "xla",
     differs("the run uses the available device, with a warning")},
    {"fsdp_config.xla_fsdp_v2", kBooleanWord, "false", "XLA's SPMD", "xla",
     differs("the run uses the available device, with a warning")},
    {"fsdp_config.xla_fsdp_grad_ckpt", kBooleanWord, "false",
     "compute activations again in backward", "recompute"},
};

constexpr std::string_view kTrainerGuides = "is not read by the Trainer; honoured as meant";
constexpr std::string_view kPlace = "belongs in fsdp_config; honoured as meant there";

constexpr SchemaAlias kTrainerAliases[] = {
    {"fsdp_config.min_num_param", "fsdp_config.min_num_params", kTrainerGuides},
    {"fsdp_config.wrap_policy", "fsdp_config.auto_wrap_policy", kTrainerGuides},
    {"fsdp_config.backward_prefetch_policy", "fsdp_config.backward_prefetch", kTrainerGuides},
    {"fsdp_config.offload_params", "fsdp_config.cpu_offload", kTrainerGuides},
    {"fsdp_min_num_params", "fsdp_config.min_num_params", kPlace},
    {"fsdp_transformer_layer_cls_to_wrap", "fsdp_config.transformer_layer_cls_to_wrap", kPlace},
    {"xla", "fsdp_config.xla", kPlace},
    {"xla_fsdp_v2", "fsdp_config.xla_fsdp_v2", kPlace},
    {"xla_fsdp_grad_ckpt", "fsdp_config.xla_fsdp_grad_ckpt", kPlace},
    {"xla_fsdp_settings", "fsdp_config.xla_fsdp_settings", kPlace},
};

}  // namespace

std::span<const SchemaKey> trainer_keys() { return kTrainerKeys; }
std::span<const SchemaAlias> trainer_aliases() { return kTrainerAliases; }

}  // namespace fullshard::config
