// SPDX-License-Identifier: Apache-2.0
// The parts of a Plan. Names follow DeepSpeed's and Accelerate's keys; units are elements unless
// said otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/schema/setting.h"

namespace fullshard {

struct LaunchPlan {
  Setting<std::optional<int64_t>> ranks{};  // on all machines together
  Setting<int64_t> machines{1};
  Setting<int64_t> machine_rank{0};
  Setting<std::optional<std::string>> address{};
  Setting<std::optional<int64_t>> port{};        // 0: a free one
  Setting<std::optional<std::string>> device{};  // "cpu"; absent: what is available
  Setting<std::string> gpu_ids{"all"};
  Setting<bool> bind_cores{false};
  Setting<std::optional<std::string>> hostfile{};
  Setting<std::optional<std::string>> include{};
  Setting<std::optional<std::string>> exclude{};
};

struct ShardingPlan {
  Setting<std::string> strategy{"FULL_SHARD"};  // as parse_strategy() reads it
  Setting<std::optional<int64_t>> stage{};      // ZeRO stage, instead of a strategy
  Setting<std::optional<int64_t>> factor{};     // ranks that one copy is sharded over
  Setting<std::optional<bool>> reshard_after_forward{};
  Setting<std::string> backward_prefetch{"BACKWARD_PRE"};  // or BACKWARD_POST, NO_PREFETCH
  Setting<bool> forward_prefetch{false};
  Setting<bool> limit_all_gathers{true};
  Setting<bool> sync_module_states{true};  // DeepSpeed always takes rank 0's
  Setting<bool> deferred_loading{false};   // create sharded; read only what a rank owns

  // DeepSpeed's twelve knobs; 0 in a size: no limit.
  Setting<bool> overlap_comm{true};
  Setting<bool> reduce_scatter{true};
  Setting<bool> allgather_partitions{true};
  Setting<bool> contiguous_gradients{true};
  Setting<bool> round_robin_gradients{false};
  Setting<int64_t> allgather_bucket_size{0};
  Setting<int64_t> reduce_bucket_size{0};
  Setting<int64_t> sub_group_size{0};
  Setting<int64_t> prefetch_bucket_size{0};
  Setting<int64_t> param_persistence_threshold{0};
  Setting<int64_t> max_live_parameters{0};
  Setting<int64_t> max_reuse_distance{0};
};

struct WrapPlanSettings {
  // TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP, or MARKED: the modules marked as units.
  Setting<std::string> policy{"MARKED"};
  Setting<std::vector<std::string>> classes{};  // empty: the model's own blocks
  Setting<std::vector<std::string>> leaves{};   // classes of units without nested units
  Setting<int64_t> min_num_params{100'000'000};
  Setting<std::string> ignored_modules{};  // regular expression over module paths
};

struct LossScalePlan {
  Setting<double> loss_scale{0};  // 0: dynamic
  Setting<int64_t> initial_scale_power{16};
  Setting<int64_t> loss_scale_window{1000};
  Setting<int64_t> hysteresis{2};
  Setting<bool> consecutive_hysteresis{false};
  Setting<int64_t> min_loss_scale{1};
};

struct PrecisionPlan {
  Setting<bool> fp16{false};
  Setting<bool> fp16_master_weights_and_grads{false};
  Setting<bool> bf16{false};
  Setting<bool> fp8{false};                   // matrix products of blocks in fp8; bf16 is then true
  Setting<std::string> fp8_format{"HYBRID"};  // gradients in E5M2; or E4M3
  Setting<bool> bf16_master_weights_and_grads{false};
  Setting<bool> bf16_optimizer_states{false};
  Setting<std::optional<std::string>> amp{};  // "O0" to "O3"
  // "fp32", "fp16" or "bf16"; absent: given by the precision above.
  Setting<std::optional<std::string>> communication_data_type{};
  Setting<std::optional<std::string>> grad_accum_dtype{};
  Setting<std::optional<std::string>> param_dtype{};
  Setting<std::optional<std::string>> buffer_dtype{};
  LossScalePlan scale{};
};

struct OptimizerPlan {
  Setting<std::string> type{"AdamW"};
  Setting<double> lr{5e-5};
  Setting<std::vector<double>> betas{{0.9, 0.999}};
  Setting<double> eps{1e-8};
  Setting<double> weight_decay{0};
  Setting<bool> bias_correction{true};
  Setting<bool> adam_w_mode{true};
  Setting<bool> eps_inside_sqrt{false};  // Lamb
  Setting<double> max_coeff{10};
  Setting<double> min_coeff{0.01};
  Setting<int64_t> freeze_step{100'000};  // OneBitAdam
  Setting<double> lr_decay{0};            // Adagrad
  Setting<double> initial_accumulator_value{0};
  Setting<double> momentum{0};  // SGD
  Setting<double> dampening{0};
  Setting<bool> nesterov{false};
  Setting<bool> allow_untested{false};
  Setting<bool> force_cpu_optimizer{true};
};

// The Trainer's lr_scheduler_kwargs; schedule_args.h tells which of them a schedule takes.
struct TrainerScheduleArgs {
  std::string text{};  // as given
  std::optional<double> num_cycles{}, power{}, lr_end{}, min_lr{}, min_lr_rate{}, warmup_lr_rate{},
      min_lr_ratio{};
  std::optional<int64_t> timescale{}, num_decay_steps{}, num_stable_steps{};
  std::optional<std::string> warmup_type{}, decay_type{};

  bool operator==(const TrainerScheduleArgs&) const = default;
};

struct SchedulerPlan {
  Setting<std::string> type{"WarmupDecayLR"};
  Setting<double> warmup_min_lr{0};
  Setting<std::optional<double>> warmup_max_lr{};  // absent: the optimizer's rate
  Setting<int64_t> warmup_num_steps{0};
  Setting<std::optional<double>> warmup_share{};  // of the run's steps, in place of their number
  Setting<std::string> warmup_type{"log"};
  Setting<std::optional<int64_t>> total_num_steps{};  // absent: the run's
  Setting<double> warmup_min_ratio{0};
  Setting<double> cos_min_ratio{0.0001};
  Setting<std::optional<double>> cycle_min_lr{};
  Setting<std::optional<double>> cycle_max_lr{};
  Setting<double> decay_lr_rate{0};
  Setting<int64_t> cycle_first_step_size{2000};
  Setting<std::optional<int64_t>> cycle_second_step_size{};
  Setting<int64_t> cycle_first_stair_count{0};
  Setting<std::optional<int64_t>> cycle_second_stair_count{};
  Setting<int64_t> decay_step_size{0};
  Setting<bool> cycle_momentum{true};
  Setting<double> cycle_min_mom{0.8};
  Setting<double> cycle_max_mom{0.9};
  Setting<double> decay_mom_rate{0};
  Setting<double> lr_range_test_min_lr{0.001};
  Setting<int64_t> lr_range_test_step_size{2000};
  Setting<double> lr_range_test_step_rate{1.0};
  Setting<bool> lr_range_test_staircase{false};
  Setting<TrainerScheduleArgs> trainer{};
};

struct BatchPlan {
  Setting<std::optional<int64_t>> global{};
  Setting<std::optional<int64_t>> micro{};
  Setting<std::optional<int64_t>> accumulation{};
  Setting<bool> drop_last{false};  // leave out an epoch's last batch if it is not full
};

struct OffloadTarget {
  Setting<std::string> device{"none"};  // or "cpu", "nvme"
  Setting<std::optional<std::string>> nvme_path{};
  Setting<int64_t> buffer_count{4};
  Setting<bool> pin_memory{true};
};

struct OffloadPlan {
  OffloadTarget parameters{};
  Setting<int64_t> parameter_buffer_size{100'000'000};
  Setting<int64_t> max_in_cpu{1'000'000'000};
  OffloadTarget optimizer{};
  Setting<bool> pipeline_read{false};
  Setting<bool> pipeline_write{false};
  Setting<bool> fast_init{false};
  Setting<double> ratio{1.0};
  Setting<std::optional<int64_t>> resident_bytes{};  // device memory for states that may stay
  Setting<bool> everything{false};                   // FSDP: parameters, gradients and states
  // Where states in host memory are updated: auto, device, host, or the host's share of them.
  Setting<std::string> step{"auto"};

  Setting<int64_t> block_size{1'048'576};  // aio, in bytes
  Setting<int64_t> queue_depth{8};
  Setting<int64_t> threads{1};
  Setting<bool> single_submit{false};
  Setting<bool> overlap_events{true};
};

struct RecomputePlan {
  Setting<bool> enabled{false};
  Setting<bool> offload{false};  // activations wait in host memory
};

struct CheckpointPlan {
  Setting<std::string> state_dict_type{"SHARDED_STATE_DICT"};
  Setting<std::string> tag_validation{"Warn"};
  Setting<bool> node_local{false};
  Setting<bool> gather_16bit_weights{false};
  Setting<bool> load_from_fp32_weights{true};
};

// A monitor that writes the values of metrics.jsonl for another program.
struct MonitorPlan {
  Setting<bool> enabled{false};
  Setting<std::string> output_path{};  // empty: in the run's own folder
  Setting<std::string> job_name{"DeepSpeedJobName"};
};

struct CommsLoggerPlan {
  Setting<bool> enabled{false};
  Setting<bool> verbose{false};
  Setting<bool> prof_all{true};
  Setting<bool> debug{false};
  Setting<std::vector<std::string>> prof_ops{};
};

struct FlopsProfilerPlan {
  Setting<bool> enabled{false};
  Setting<int64_t> profile_step{1};
  Setting<int64_t> module_depth{-1};  // -1: the deepest
  Setting<int64_t> top_modules{1};
  Setting<bool> detailed{true};
  Setting<std::optional<std::string>> output_file{};
};

struct LoggingPlan {
  Setting<std::optional<int64_t>> steps_per_print{};
  Setting<bool> wall_clock_breakdown{false};
  Setting<bool> memory_breakdown{false};
  Setting<std::optional<std::string>> log_level{};
  MonitorPlan tensorboard{};
  MonitorPlan csv_monitor{};
  CommsLoggerPlan comms_logger{};
  FlopsProfilerPlan flops_profiler{};
};

struct XlaPlan {
  Setting<bool> enabled{false};
  Setting<bool> version_2{false};
};

}  // namespace fullshard
