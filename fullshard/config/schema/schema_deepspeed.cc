// SPDX-License-Identifier: Apache-2.0
// The top of a DeepSpeed file, its precision sections, and the other names of its keys.
#include "fullshard/config/schema/batch_sizes.h"
#include "fullshard/config/schema/schema.h"

namespace fullshard::config {
namespace {
using namespace schema;

constexpr std::string_view kDtypes =
    "fp32=float32=torch.float32=float|fp16=float16=torch.float16=half|"
    "bf16=bfloat16=torch.bfloat16=bfp16";

constexpr auto kMostInBatch = static_cast<double>(kLargestBatch);
constexpr auto kMostInMicro = static_cast<double>(kLargestMicroBatch);

constexpr double kMostInt = std::numeric_limits<int32_t>::max();
constexpr auto kNoPrescaling =
    noted("sums are in fp32 and the mean is exact, so no division is needed before them");

constexpr SchemaKey kDeepSpeedKeys[] = {
    {"train_batch_size", integer(1, kMostInBatch).or_auto(), "null",
     "samples of one optimizer step over all ranks", "batch"},
    {"train_micro_batch_size_per_gpu", integer(1, kMostInMicro).or_auto(), "null",
     "samples of one rank in one forward", "batch"},
    {"gradient_accumulation_steps", integer(1, kMostInMicro).or_auto(), "null",
     "micro-batches of one rank per optimizer step", "batch"},
    {"managed_gradient_accumulation", boolean(), "true", "the engine counts micro-batches", "batch",
     noted("a C++ loop decides when it steps")},
    {"gradient_clipping", number().or_auto(), "1.0",
     "largest global norm of gradients; 0: no clipping", "clipping"},
    {"prescale_gradients", boolean(), "false", "divide gradients before they are summed",
     "sharding", kNoPrescaling},
    {"gradient_predivide_factor", positive(), "1.0", "what prescaling divides by", "sharding",
     kNoPrescaling},
    {"gradient_allreduce_op", choice("mean|sum"), "mean", "how ranks' gradients are joined",
     "sharding", refused("gradients are always the mean over ranks")},
    {"communication_data_type", choice(kDtypes), "null",
     "dtype that gradients are sent in; unset: the compute dtype", "precision"},
    {"seq_parallel_communication_data_type", choice(kDtypes), "fp32",
     "dtype of sequence-parallel sums", "precision", refused("there is no sequence parallelism")},
    {"sequence_parallel_size", integer(1), "1", "ranks that share one sequence", "sharding",
     refused("there is no sequence parallelism")},
    {"sparse_gradients", boolean(), "false", "send embedding gradients as sparse tensors",
     "sharding", refused("gradients are dense in the flat buffer")},
    {"disable_allgather", boolean(), "false", "use broadcasts in place of all-gathers", "sharding",
     differs("the same as zero_optimization.allgather_partitions false")},
    {"dataloader_drop_last", boolean(), "false", "leave out a last incomplete batch", "batch"},
    {"zero_allow_untested_optimizer", boolean(), "false",
     "let ZeRO run with a user's own optimizer", "optimizer"},
    {"zero_force_ds_cpu_optimizer", boolean(), "true",
     "with offload, insist on the built-in CPU optimizer", "optimizer"},
    {"steps_per_print", integer(1), "null", "steps between two progress lines", "logging"},
    {"wall_clock_breakdown", boolean(), "false", "time of forward, backward and step in the log",
     "logging"},
    {"memory_breakdown", boolean(), "false", "peak memory by purpose in the log", "logging"},
    {"dump_state", boolean(), "false", "print the effective configuration at the start", "logging",
     differs("it is always printed and kept in run.json")},
    {"log_level", any_case("debug|info|warning|error|critical"), "null", "what is logged",
     "logging"},
    {"disable_python_gc", boolean(), "false", "switch Python's garbage collector off", "logging",
     differs("there is no Python")},
    {"vocabulary_size", integer(1), "null", "entries of the vocabulary, for a warning", "logging",
     noted("it comes from the model's own configuration")},
    {"allgather_size", computed(0), "500000000", "largest gather of the old boolean ZeRO section",
     "sharding", differs("read as zero_optimization.allgather_bucket_size")},

    {"fp16.enabled", boolean().or_auto(), "false", "compute in fp16 with loss scaling",
     "precision"},
    {"fp16.auto_cast", boolean().or_auto(), "false", "cast inputs to fp16", "precision",
     differs("units always cast the floating tensors that they are called with")},
    {"fp16.loss_scale", number().or_auto(), "0", "a fixed loss scale; 0: dynamic", "precision"},
    {"fp16.initial_scale_power", integer(0, 64).or_auto(), "16",
     "the first loss scale is 2 to this power", "precision"},
    {"fp16.loss_scale_window", integer(1, kMostInt).or_auto(), "1000",
     "good steps after which the scale doubles", "precision"},
    {"fp16.hysteresis", integer(1, kMostInt).or_auto(), "2",
     "overflows tolerated before the scale is halved", "precision"},
    {"fp16.consecutive_hysteresis", boolean().or_auto(), "false",
     "a good step restores the hysteresis", "precision"},
    {"fp16.min_loss_scale", integer(1).or_auto(), "1", "the smallest loss scale", "precision"},
    {"fp16.fp16_master_weights_and_grads", boolean().or_auto(), "false",
     "keep masters and gradients in fp16 too", "precision"},

    {"bf16.enabled", boolean().or_auto(), "false", "compute in bf16", "precision"},
    {"bf16.immediate_grad_update", boolean().or_auto(), "false",
     "add a gradient to its fp32 sum as soon as it is there", "precision", differs("it always is")},
    {"bf16.check_grad_overflow", boolean().or_auto(), "true",
     "skip a step whose gradients are not finite", "precision",
     noted("a step whose gradients are not finite is always left out")},
    {"bf16.bf16_master_weights_and_grads", boolean().or_auto(), "false",
     "keep masters and gradients in bf16 too", "precision"},
    {"bf16.bf16_optimizer_states", boolean().or_auto(), "false",
     "keep moments in bf16 too; needs bf16_master_weights_and_grads", "precision"},

    {"amp.enabled", boolean().or_auto(), "false", "apex's mixed precision", "precision"},
    {"amp.opt_level", any_case("O0|O1|O2|O3").or_auto(), "O1",
     "O0 fp32, O1 and O2 fp16 with fp32 masters, O3 fp16 throughout", "precision"},
    {"amp.loss_scale", text().or_auto(), "dynamic", "apex's loss scale", "precision",
     refused("the keys of fp16 set the loss scale")},

    {"torch_autocast.enabled", boolean(), "false", "autocast per operator", "precision",
     refused("the compute dtype applies to a whole unit; use bf16 or fp16")},
    {"torch_autocast.dtype", choice(kDtypes), "bf16", "autocast's dtype", "precision",
     refused("the compute dtype applies to a whole unit; use bf16 or fp16")},
    {"torch_autocast.lower_precision_safe_modules", texts(), "null",
     "modules that autocast may lower", "precision",
     refused("the compute dtype applies to a whole unit; use bf16 or fp16")},

    {"data_types.grad_accum_dtype", choice(kDtypes), "null",
     "dtype that gradients are summed and kept in", "precision"},
    {"data_types.param_dtype", choice(kDtypes), "null", "dtype that parameters are computed in",
     "precision"},
    {"data_types.buffer_dtype", choice(kDtypes), "null", "dtype of floating buffers", "precision"},
    {"data_types.keep_in_fp32_modules", texts().or_auto(), "auto",
     "modules that stay in fp32 in 16-bit runs", "precision",
     refused("the compute dtype applies to the whole model")},
};

constexpr std::string_view kMoved = "belongs at the top of the file; honoured as meant there";
constexpr std::string_view kOldName = "is the old name";

constexpr SchemaAlias kDeepSpeedAliases[] = {
    {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
    {"zero_optimization.param_persistence_threshold",
     "zero_optimization.stage3_param_persistence_threshold"},
    {"zero_optimization.model_persistence_threshold",
     "zero_optimization.stage3_model_persistence_threshold"},
    {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
    {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
    {"zero_optimization.gather_16bit_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.module_granularity_threshold",
     "zero_optimization.stage3_module_granularity_threshold"},
    {"zero_optimization.use_all_reduce_for_fetch_params",
     "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
    {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save", kOldName},
    {"bfloat16", "bf16", kOldName},
    {"zero_optimization.aio", "aio", kMoved},
    {"aio.thread_count", "aio.intra_op_parallelism", kOldName},
};

}  // namespace

std::span<const SchemaKey> deepspeed_root_keys() { return kDeepSpeedKeys; }
std::span<const SchemaAlias> deepspeed_aliases() { return kDeepSpeedAliases; }

}  // namespace fullshard::config
