// SPDX-License-Identifier: Apache-2.0
// Accelerate's file: its top, fsdp_config and deepspeed_config. Defaults are the launcher's.
#include "fullshard/config/schema/batch_sizes.h"
#include "fullshard/config/schema/schema.h"

namespace fullshard::config {
namespace {
using namespace schema;

constexpr std::string_view kStrategies =
    "FULL_SHARD=1|SHARD_GRAD_OP=2|NO_SHARD=3|HYBRID_SHARD=4|HYBRID_SHARD_ZERO2=5";
constexpr auto kNoCloud = refused("runs start on hosts, not in a cloud service");
constexpr auto kNoXla = refused("there is no XLA in this build");
constexpr auto kAccelerateOffload =
    differs("without effect on a CPU, whose memory holds everything already");
constexpr const char* kStateDict =
    "what a checkpoint holds: FULL_STATE_DICT adds the whole weights to it";
constexpr auto kRemoved = differs("not a setting of version 2; a warning says so");

constexpr SchemaKey kAccelerateKeys[] = {
    {"compute_environment", any_case("LOCAL_MACHINE=0|AMAZON_SAGEMAKER=1"), "LOCAL_MACHINE",
     "where the run starts", "launch", kNoCloud},
    {"distributed_type",
     any_case("NO|MULTI_CPU|MULTI_GPU|MULTI_NPU|MULTI_MLU|MULTI_SDAA|MULTI_MUSA|MULTI_XPU|"
              "MULTI_HPU|MULTI_NEURON|DEEPSPEED|FSDP|XLA=TPU|MEGATRON_LM")
         .loose(),
     "NO", "what shards the model: FSDP, DEEPSPEED, or nothing; must be given", "sharding",
     differs(
         "MULTI_CPU and MULTI_GPU are NO_SHARD; XLA runs on the available device with a warning; "
         "other devices and MEGATRON_LM are refused")},
    {"mixed_precision", any_case("no=None|fp16|bf16|fp8").loose(), "no", "the compute dtype",
     "precision", differs("fp8: products of blocks by our own kernels, docs/training.md")},
    {"use_cpu", kBooleanWord, "false", "compute on the CPU", "launch"},
    {"debug", kBooleanWord, "false", "compare the shapes of collectives", "launch",
     differs("they are always compared")},
    {"num_processes", integer(-1, 65536).loose(), "-1",
     "ranks on all machines together; -1: set on the command line", "launch"},
    {"machine_rank", integer(0, 65535).loose(), "0", "which machine this is", "launch"},
    {"num_machines", integer(1, 65536).loose(), "1", "how many machines", "launch"},
    {"gpu_ids", text().loose(), "all", "which GPUs of this machine", "launch"},
    {"main_process_ip", text(), "null", "address where ranks meet", "launch"},
    {"main_process_port", integer(0, 65535).loose(), "null", "port where ranks meet; 0: a free one",
     "launch"},
    {"rdzv_backend", any_case("static|c10d"), "static", "how ranks meet", "launch",
     differs("one rendezvous serves both")},
    {"same_network", kBooleanWord, "false", "all machines share a network", "launch",
     differs("the address decides")},
    {"main_training_function", text(), "main", "Python function to start", "launch",
     noted("a program is started as a whole")},
    {"enable_cpu_affinity", kBooleanWord, "false", "bind ranks to cores", "launch"},
    {"downcast_bf16", kBooleanWord, "false", "bf16 for doubles on TPU", "precision", kNoXla},
    {"fp16", kBooleanWord, "false", "old form of mixed_precision fp16", "precision",
     differs("read as mixed_precision")},
    {"tpu_name", text(), "null", "TPU to use", "launch", kNoXla},
    {"tpu_zone", text(), "null", "its zone", "launch", kNoXla},
    {"tpu_use_cluster", kBooleanWord, "false", "TPU pod", "launch", kNoXla},
    {"tpu_use_sudo", kBooleanWord, "false", "sudo on TPU hosts", "launch", kNoXla},
    {"command_file", text(), "null", "commands for TPU hosts", "launch", kNoXla},
    {"commands", texts(), "null", "commands for TPU hosts", "launch", kNoXla},
    {"tpu_vm", texts(), "null", "TPU hosts", "launch", kNoXla},
    {"tpu_env", texts(), "null", "their environment", "launch", differs("there are none")},

    {"fsdp_config.fsdp_version", integer(1, 2).loose(), "1", "FSDP version of the keys",
     "sharding"},
    {"fsdp_config.fsdp_sharding_strategy", any_case(kStrategies).loose(), "FULL_SHARD",
     "what is sharded", "sharding", kHonoured, "1"},
    {"fsdp_config.fsdp_sharding_strategy", any_case(kStrategies).loose(), "FULL_SHARD",
     "what is sharded", "sharding",
     differs("not a key of version 2, but honoured as meant, with a warning"), "2"},
    {"fsdp_config.fsdp_reshard_after_forward",
     any_case("FULL_SHARD=1=true|SHARD_GRAD_OP=2=false|NO_SHARD=3|HYBRID_SHARD=4|"
              "HYBRID_SHARD_ZERO2=5")
         .loose(),
     "null", "the strategy, by its newer name", "sharding",
     differs("Accelerate ignores it; honoured as meant, with a warning"), "1"},
    {"fsdp_config.fsdp_reshard_after_forward", kBooleanWord, "true",
     "release parameters between forward and backward", "sharding", kHonoured, "2"},
    {"fsdp_config.fsdp_offload_params", kBooleanWord, "false",
     "parameters, gradients and the step in host memory", "offload", kAccelerateOffload},
    {"fsdp_config.fsdp_auto_wrap_policy",
     any_case("TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP|NO_WRAP"), "NO_WRAP",
     "which modules are units", "wrap"},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", texts(), "null",
     "class names of units, separated by commas; unset: the model's own blocks; embedding and "
     "head of a large vocabulary are units too",
     "wrap"},
    {"fsdp_config.fsdp_min_num_params", computed(0).loose(), "100000000",
     "modules with at least this many parameters are units", "wrap"},
    {"fsdp_config.fsdp_backward_prefetch",
     any_case("BACKWARD_PRE=1|BACKWARD_POST=2|NO_PREFETCH").loose(), "NO_PREFETCH",
     "gather the next unit before or after this one's backward", "sharding", kHonoured, "1"},
    {"fsdp_config.fsdp_backward_prefetch",
     any_case("BACKWARD_PRE=1|BACKWARD_POST=2|NO_PREFETCH").loose(), "BACKWARD_PRE",
     "gather the next unit before or after this one's backward", "sharding",
     differs("Accelerate ignores it in version 2; honoured here, with a warning"), "2"},
    {"fsdp_config.fsdp_forward_prefetch", kBooleanWord, "false",
     "gather the next unit during this one's forward", "sharding"},
    {"fsdp_config.fsdp_state_dict_type",
     any_case("FULL_STATE_DICT=1|LOCAL_STATE_DICT=2|SHARDED_STATE_DICT=3").loose(),
     "FULL_STATE_DICT", kStateDict, "checkpoint", kHonoured, "1"},
    {"fsdp_config.fsdp_state_dict_type", any_case("FULL_STATE_DICT=1|SHARDED_STATE_DICT=3").loose(),
     "SHARDED_STATE_DICT", kStateDict, "checkpoint", kHonoured, "2"},
    {"fsdp_config.fsdp_use_orig_params", kBooleanWord, "true",
     "parameters keep their names and shapes", "sharding", noted("they always do"), "1"},
    {"fsdp_config.fsdp_use_orig_params", kBooleanWord, "true",
     "parameters keep their names and shapes", "sharding", kRemoved, "2"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", kBooleanWord, "true",
     "each rank reads only what it owns of a pretrained model", "sharding",
     noted("each rank always reads only what it owns")},
    {"fsdp_config.fsdp_sync_module_states", kBooleanWord, "true",
     "take rank 0's parameters and buffers at the start", "sharding", kHonoured, "1"},
    {"fsdp_config.fsdp_sync_module_states", kBooleanWord, "true",
     "take rank 0's parameters and buffers at the start", "sharding", kRemoved, "2"},
    {"fsdp_config.fsdp_activation_checkpointing", kBooleanWord, "false",
     "compute activations again in backward", "recompute"},
    {"fsdp_config.fsdp_activation_checkpointing_offload", kBooleanWord, "false",
     "keep activations in host memory until backward", "recompute"},
    {"fsdp_config.fsdp_ignored_modules", text(), "null",
     "regular expression of module paths that are left alone", "wrap"},
    {"fsdp_config.fsdp_limit_all_gathers", kBooleanWord, "true", "bound the gathers in flight",
     "sharding"},
    {"fsdp_config.xla", kBooleanWord, "false", "run through PyTorch/XLA", "xla",
     differs("the run uses the available device, with a warning")},
    {"fsdp_config.xla_fsdp_v2", kBooleanWord, "false", "XLA's SPMD", "xla",
     differs("the run uses the available device, with a warning")},
    {"fsdp_config.xla_fsdp_grad_ckpt", kBooleanWord, "false",
     "compute activations again in backward", "recompute"},

    {"deepspeed_config.deepspeed_config_file", text(), "null", "a DeepSpeed file", "sharding"},
    {"deepspeed_config.zero_stage", integer(0, 3).loose(), "2", "ZeRO stage", "sharding"},
    {"deepspeed_config.offload_optimizer_device", any_case("none|cpu|nvme"), "none",
     "where optimizer states are kept", "offload", kAccelerateOffload},
    {"deepspeed_config.offload_param_device", any_case("none|cpu|nvme"), "none",
     "where parameters are kept", "offload", kAccelerateOffload},
    {"deepspeed_config.offload_optimizer_nvme_path", text(), "null", "folder for states on disk",
     "offload", kAccelerateOffload},
    {"deepspeed_config.offload_param_nvme_path", text(), "null", "folder for parameters on disk",
     "offload", kAccelerateOffload},
    {"deepspeed_config.gradient_accumulation_steps",
     integer(1, static_cast<double>(kLargestMicroBatch)).or_auto().loose(), "1",
     "micro-batches of one rank per optimizer step", "batch"},
    {"deepspeed_config.gradient_clipping", number().or_auto().loose(), "1.0",
     "largest global norm of gradients; 0: no clipping", "clipping"},
    {"deepspeed_config.zero3_init_flag", kBooleanWord, "true", "create the model sharded",
     "sharding", noted("`train` always does; other programs call deferred()")},
    {"deepspeed_config.zero3_save_16bit_model", kBooleanWord, "false",
     "write a whole 16-bit model at the end", "checkpoint"},
    {"deepspeed_config.deepspeed_multinode_launcher",
     choice("pdsh|standard|openmpi|mvapich|mpich|nossh|slurm"), "pdsh",
     "launcher for other machines", "launch", differs("ssh, or what started this program")},
    {"deepspeed_config.deepspeed_hostfile", text(), "null", "file of hosts and slots", "launch"},
    {"deepspeed_config.deepspeed_exclusion_filter", text(), "null", "hosts to leave out", "launch"},
    {"deepspeed_config.deepspeed_inclusion_filter", text(), "null", "hosts to take", "launch"},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", texts(), "null",
     "expert layers that are gathered as a whole: units without nested units", "wrap",
     noted("units are what the wrap policy names")},
};

constexpr std::string_view kAccelerateGuides =
    "appears in Hugging Face's guides, but Accelerate does not read it; honoured as meant";
constexpr std::string_view kXlaPlace = "belongs in fsdp_config; honoured as meant there";

constexpr SchemaAlias kAccelerateAliases[] = {
    {"fsdp_config.fsdp_wrap_policy", "fsdp_config.fsdp_auto_wrap_policy", kAccelerateGuides},
    {"fsdp_config.wrap_policy", "fsdp_config.fsdp_auto_wrap_policy", kAccelerateGuides},
    {"fsdp_config.min_num_param", "fsdp_config.fsdp_min_num_params", kAccelerateGuides},
    {"fsdp_config.fsdp_min_num_param", "fsdp_config.fsdp_min_num_params", kAccelerateGuides},
    {"fsdp_config.fsdp_backward_prefetch_policy", "fsdp_config.fsdp_backward_prefetch",
     kAccelerateGuides},
    {"fsdp_config.backward_prefetch_policy", "fsdp_config.fsdp_backward_prefetch",
     kAccelerateGuides},
    {"fsdp_config.transformer_cls_names_to_wrap", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"},
    {"fsdp_config.fsdp_xla", "fsdp_config.xla"},
    {"xla", "fsdp_config.xla", kXlaPlace},
    {"xla_fsdp_v2", "fsdp_config.xla_fsdp_v2", kXlaPlace},
    {"xla_fsdp_grad_ckpt", "fsdp_config.xla_fsdp_grad_ckpt", kXlaPlace},
    {"xla_fsdp_settings", "fsdp_config.xla_fsdp_settings", kXlaPlace},
    {"dynamo_backend", "dynamo_config.dynamo_backend"},
};

}  // namespace

std::span<const SchemaKey> accelerate_keys() { return kAccelerateKeys; }
std::span<const SchemaAlias> accelerate_aliases() { return kAccelerateAliases; }

}  // namespace fullshard::config
