// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/monitor.h"

#include "fullshard/report/csv_files.h"
#include "fullshard/report/event_file.h"
#include "fullshard/report/records/run_file.h"

namespace fullshard::report {
namespace {

constexpr std::string_view kOverSamples = "Train/Samples/";

std::string folder_of(const MonitorSettings& settings, const std::string& own_folder) {
  std::string folder = settings.output_path.empty() ? own_folder : settings.output_path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (!settings.job_name.empty()) folder += "/" + settings.job_name;
  make_folders(folder);
  return folder;
}

// A record with every optional value.
StepRecord full_record() {
  StepRecord record;
  record.grad_norm = record.mfu = record.eval_loss = 0;
  record.device_peak_bytes = 1;
  record.phases.emplace();
  return record;
}

}  // namespace

std::vector<Scalar> scalars_over_steps(const StepRecord& record) {
  std::vector<Scalar> scalars;
  const auto add = [&](std::string_view tag, double value) {
    scalars.push_back({tag, value, record.step});
  };
  add("train/loss", record.loss);
  add("train/learning_rate", record.lr);
  if (record.grad_norm) add("train/grad_norm", *record.grad_norm);
  add("train/tokens_per_s", record.tokens_per_s);
  if (record.mfu) add("train/mfu", *record.mfu);
  add("train/step_s", record.step_s);
  add("train/comm_s", record.comm_s);
  add("train/exposed_comm_s", record.exposed_comm_s);
  if (record.device_peak_bytes > 0) {
    add("train/device_peak_bytes", static_cast<double>(record.device_peak_bytes));
  }
  add("train/host_peak_bytes", static_cast<double>(record.host_peak_bytes));
  if (record.phases) {
    add("train/data_s", record.phases->data_s);
    add("train/forward_s", record.phases->forward_s);
    add("train/backward_s", record.phases->backward_s);
    add("train/optimizer_s", record.phases->optimizer_s);
  }
  if (record.eval_loss) add("eval/loss", *record.eval_loss);
  return scalars;
}

std::vector<Scalar> scalars_over_samples(const StepRecord& record, int64_t samples_per_step) {
  const int64_t samples = record.step * samples_per_step;
  return {{"Train/Samples/train_loss", record.loss, samples},
          {"Train/Samples/lr", record.lr, samples},
          {"Train/Samples/loss_scale", record.loss_scale, samples}};
}

bool is_over_samples(std::string_view tag) { return tag.starts_with(kOverSamples); }

std::vector<std::string_view> all_tags() {
  std::vector<std::string_view> tags;
  for (const Scalar& scalar : scalars_over_steps(full_record())) tags.push_back(scalar.tag);
  for (const Scalar& scalar : scalars_over_samples(full_record(), 1)) tags.push_back(scalar.tag);
  return tags;
}

std::vector<std::unique_ptr<Monitor>> open_monitors(const MonitorOptions& options) {
  std::vector<std::unique_ptr<Monitor>> monitors;
  if (options.tensorboard.is_enabled) {
    const std::string folder = folder_of(options.tensorboard, options.run_folder + "/tensorboard");
    monitors.push_back(std::make_unique<EventFile>(folder, options));
  }
  if (options.csv.is_enabled) {
    const std::string folder = folder_of(options.csv, options.run_folder + "/csv");
    monitors.push_back(std::make_unique<CsvFiles>(folder, options));
  }
  return monitors;
}

}  // namespace fullshard::report
