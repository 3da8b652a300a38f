#include "fullshard/train/run_account.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/headline.h"
#include "fullshard/report/html_report.h"
#include "fullshard/report/run_file.h"
#include "fullshard/shard/engine.h"

namespace fullshard {
namespace {

constexpr int64_t kFewestStepsPerPrint = 10;
constexpr int64_t kUsualLines = 40;
constexpr auto kPageAge = std::chrono::seconds(10);  // of report.html while steps go on

std::string in(const RunOptions& options, const char* name) { return options.output + "/" + name; }

std::string host_name() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

void make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      fail_as(ErrorKind::input, "{}: cannot be made: {}", part, std::strerror(errno));
    }
    if (end == std::string::npos) return;
  }
}

// The terminal that the launcher lends, else this process's own.
int progress_descriptor() {
  const char* lent = std::getenv("FULLSHARD_TERMINAL_FD");
  const int descriptor = lent != nullptr ? std::atoi(lent) : -1;
  return descriptor > 2 && ::isatty(descriptor) != 0 ? descriptor : STDERR_FILENO;
}

std::vector<MemoryShare> shares_of(const int64_t* bytes) {
  std::vector<MemoryShare> shares;
  for (int purpose = 0; purpose < kNumPurposes; ++purpose) {
    for (int tier = 0; tier < kNumTiers; ++tier) {
      const int64_t held = bytes[purpose * kNumTiers + tier];
      if (held == 0) continue;
      shares.push_back({std::string(name_of(static_cast<Purpose>(purpose))),
                        std::string(name_of(static_cast<Tier>(tier))), held});
    }
  }
  return shares;
}

// One rank that holds everything: what the shards of one copy add up to, and whole parameters and
// gradients.
std::vector<MemoryShare> unsharded_of(const ShardedModel& sharded, int64_t optimizer_bytes) {
  const ShardOptions& options = sharded.options();
  const int64_t numel = sharded.numel();
  const auto bytes = [&](const std::optional<at::ScalarType>& dtype) {
    return numel * static_cast<int64_t>(c10::elementSize(dtype.value_or(at::kFloat)));
  };
  std::vector<MemoryShare> shares = {
      {std::string(name_of(Purpose::parameters)), "device", bytes(options.param_dtype)},
      {std::string(name_of(Purpose::gradients)), "device", bytes(options.gradient_dtype)},
      {std::string(name_of(Purpose::optimizer)), "device", optimizer_bytes}};
  if (options.param_dtype && *options.param_dtype != options.master_dtype.value_or(at::kFloat)) {
    const auto groups = sharded.engine().trainable_groups();
    const bool in_halves = !groups.empty() && groups.front()->is_in_halves();
    shares.push_back({std::string(name_of(Purpose::master)), "device",
                      in_halves ? numel * 2 : bytes(options.master_dtype)});
  }
  return shares;
}

void remove_records(const RunOptions& options) {
  for (const char* name : {"run.json", "metrics.jsonl", "report.html"}) {
    ::unlink(in(options, name).c_str());
  }
}

}  // namespace

void prepare_output_folder(const RunOptions& options, bool resumes) {
  const bool has_run = read_whole_file(in(options, "run.json")).has_value();
  if (has_run && !options.overwrite && !resumes) {
    fail_as(ErrorKind::usage,
            "{}: holds a run already; choose another --output, or add --overwrite", options.output);
  }
  make_folders(options.output);
  if (has_run && !resumes) remove_records(options);
}

RunAccount::RunAccount(const RunOptions& options, const std::vector<std::string>& command,
                       const Plan& plan, const LanguageModel& model, const ShardedModel& sharded,
                       int64_t num_steps, int64_t first_step)
    : options_(options), writes_(sharded.mesh().world().rank() == 0) {
  if (!writes_) return;
  const Mesh& mesh = sharded.mesh();
  record_.versions = {{"fullshard", FULLSHARD_VERSION}, {"libtorch", TORCH_VERSION}};
  record_.command = command;
  record_.device = mesh.world().device().str();
  record_.mesh = {.world = mesh.world().size(),
                  .replicas = mesh.num_replicas(),
                  .shards = mesh.num_shards(),
                  .hosts = {host_name()}};
  record_.model = {options.model, model.architecture(), sharded.numel()};
  record_.configuration = plan.effective_json();
  for (const std::string& warning : sharded.warnings()) record_.warnings.push_back(warning);
  for (const Problem& warning : plan.warnings()) record_.warnings.push_back(warning.text());
  record_.num_steps = num_steps;
  record_.started = static_cast<int64_t>(std::time(nullptr));
  write_run_record(in(options_, "run.json"), record_);
  metrics_ = std::make_unique<MetricsWriter>(in(options_, "metrics.jsonl"), first_step);

  ProgressOptions progress = progress_options_for(progress_descriptor());
  if (options.quiet) progress.mode = ProgressMode::silent;
  progress.num_steps = num_steps;
  progress.first_step = first_step;
  progress.steps_per_print = plan.logging.steps_per_print.value.value_or(
      std::max(kFewestStepsPerPrint, num_steps / kUsualLines));
  progress_ = std::make_unique<ProgressLine>(progress);
  describe(plan, sharded);
}

RunAccount::~RunAccount() = default;

void RunAccount::describe(const Plan& plan, const ShardedModel& sharded) {
  if (options_.quiet) return;
  const int ranks = sharded.mesh().world().size();
  const Explanation explanation = explain(plan, ranks);
  fmt::print(stderr, "{}", options_.verbose ? explanation.text() : explanation.short_text());
  if (!options_.verbose) {
    fmt::print(stderr, "(every value in effect: --verbose, or {})\n", in(options_, "run.json"));
  }
  fmt::print(stderr, "{}\n", headline(plan, ranks));
  fmt::print(stderr, "{}: {}, {} parameters, {} rank{} ({} replica{} of {} shard{}) on {}\n",
             options_.model, record_.model.architecture, format_count(sharded.numel()),
             record_.mesh.world, record_.mesh.world == 1 ? "" : "s", record_.mesh.replicas,
             record_.mesh.replicas == 1 ? "" : "s", record_.mesh.shards,
             record_.mesh.shards == 1 ? "" : "s", sharded.mesh().world().backend());
  if (options_.verbose) fmt::print(stderr, "{}", sharded.tree());
}

void RunAccount::say(const std::string& line) {
  if (writes_) progress_->log(line);
}

void RunAccount::warn(const std::string& line) {
  if (!writes_) return;
  record_.warnings.push_back(line);
  if (options_.quiet) {
    fmt::print(stderr, "warning: {}\n", line);
  } else {
    progress_->log("warning: " + line);
  }
}

void RunAccount::add(const StepRecord& record) {
  totals_.add(record);
  metrics_->append(record);
  progress_->step(record);
  const auto now = std::chrono::steady_clock::now();
  if (now - page_written_ < kPageAge) return;
  write_html_report(options_.output);  // a browser that shows it reloads it
  page_written_ = now;
}

void RunAccount::take_memory(const ShardedModel& sharded) {
  const Communicator& everyone = sharded.mesh().world().communicator();
  constexpr int64_t kKinds = int64_t{kNumPurposes} * kNumTiers;
  const auto all = everyone.allocate(kKinds * everyone.size(), at::kLong);
  const auto own = all.narrow(0, everyone.rank() * kKinds, kKinds);
  for (int purpose = 0; purpose < kNumPurposes; ++purpose) {
    for (int tier = 0; tier < kNumTiers; ++tier) {
      own[purpose * kNumTiers + tier] =
          sharded.ledger().peak(static_cast<Purpose>(purpose), static_cast<Tier>(tier));
    }
  }
  everyone.all_gather(all, own, "memory").wait();
  if (!writes_) return;
  record_.memory.ranks.clear();
  int64_t optimizer_bytes = 0;
  const int64_t* bytes = all.const_data_ptr<int64_t>();
  for (int rank = 0; rank < everyone.size(); ++rank, bytes += kKinds) {
    record_.memory.ranks.push_back(shares_of(bytes));
    for (int tier = 0; tier < kNumTiers; ++tier) {
      optimizer_bytes += bytes[static_cast<int>(Purpose::optimizer) * kNumTiers + tier];
    }
  }
  const int copies = sharded.mesh().num_replicas();
  record_.memory.unsharded = unsharded_of(sharded, optimizer_bytes / copies);
  write_run_record(in(options_, "run.json"), record_);
}

void RunAccount::finish(RunStatus status, const std::string& problem,
                        const std::vector<std::pair<std::string, std::string>>& places) {
  if (!writes_) return;
  progress_->clear();
  if (status == RunStatus::failed && totals_.num_steps() == 0) {  // there was no run
    metrics_.reset();
    remove_records(options_);
    return;
  }
  record_.status = status;
  record_.problem = problem;
  record_.tokens = totals_.tokens();
  record_.ended = static_cast<int64_t>(std::time(nullptr));
  write_run_record(in(options_, "run.json"), record_);
  metrics_.reset();
  write_html_report(options_.output);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  if (options_.json) {
    nlohmann::json summary = {{"status", std::string(name_of(status))},
                              {"steps", totals_.num_steps()},
                              {"tokens", totals_.tokens()},
                              {"seconds", elapsed.count()},
                              {"output", options_.output}};
    if (totals_.last()) summary["loss"] = totals_.last()->loss;
    if (totals_.last_evaluation()) summary["eval_loss"] = totals_.last_evaluation()->loss;
    fmt::print("{}\n", summary.dump());
  } else if (!options_.quiet && status != RunStatus::failed) {
    fmt::print("{}", summary_table(totals_, elapsed.count(), places));
  }
  std::fflush(stdout);
}

}  // namespace fullshard
