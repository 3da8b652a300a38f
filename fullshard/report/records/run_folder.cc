// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_folder.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/text_file.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/records/run_totals.h"

namespace fullshard::report {
namespace {

constexpr size_t kMostLogs = 16;
constexpr size_t kMostLines = 40;
constexpr int64_t kMostLogBytes = 16 << 10;  // of one rank
constexpr double kLongSilence = 600;         // seconds
constexpr double kSilentSteps = 20;

// The N of "rank-N.log".
std::optional<int> rank_of(std::string_view name) {
  constexpr std::string_view kFront = "rank-", kBack = ".log";
  if (!name.starts_with(kFront) || !name.ends_with(kBack)) return std::nullopt;
  name.remove_prefix(kFront.size());
  if (name.size() <= kBack.size()) return std::nullopt;
  name.remove_suffix(kBack.size());
  int rank = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (problem != std::errc() || end != name.data() + name.size() || rank < 0) return std::nullopt;
  return rank;
}

RankLog read_log(int rank, const std::string& path) {
  const std::string text = read_end_of_file(path, kMostLogBytes);
  RankLog log{.rank = rank};
  std::string_view left = text;
  while (!left.empty()) {
    const size_t end = std::min(left.find('\n'), left.size());
    log.lines.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  const bool is_cut = static_cast<int64_t>(text.size()) == kMostLogBytes;
  const size_t surplus = log.lines.size() > kMostLines ? log.lines.size() - kMostLines : 0;
  // The first line of the end of a file may be cut off.
  const size_t gone = std::max<size_t>(surplus, is_cut && log.lines.size() > 1 ? 1 : 0);
  log.lines.erase(log.lines.begin(), log.lines.begin() + static_cast<int64_t>(gone));
  log.has_more = is_cut || surplus > 0;
  return log;
}

void read_logs(RunFolder& run) {
  const std::string folder = run.path + "/logs";
  std::vector<std::pair<int, std::string>> logs;
  for (const std::string& name : base::names_in_folder(folder)) {
    if (const auto rank = rank_of(name)) logs.emplace_back(*rank, folder + "/" + name);
  }
  std::sort(logs.begin(), logs.end());
  run.num_logs = static_cast<int>(logs.size());
  for (const auto& [rank, path] : logs) {
    run.last_write = std::max(run.last_write, last_write_time(path));
    if (run.logs.size() < kMostLogs) run.logs.push_back(read_log(rank, path));
  }
}

void close_if_dead(RunFolder& run, const RunOwner& owner) {
  if (run.owner != OwnerState::gone || !run.record) return;
  if (run.record->status != RunStatus::running) return;
  run.record->status = RunStatus::failed;
  run.record->problem = owner.death();
  run.record->ended = static_cast<int64_t>(run.last_write);
}

}  // namespace

bool RunFolder::is_live(double now) const {
  if (!record || record->status != RunStatus::running) return false;
  if (owner == OwnerState::live) return true;
  const double step_s = metrics.totals().median_step_s();
  return now - last_write < std::max(kLongSilence, kSilentSteps * step_s);
}

RunFolder read_run_folder(const std::string& path) {
  if (!base::is_folder(path)) {
    fail_as(ErrorKind::input, "report: '{}' is not a folder; give the --output folder of a run",
            path);
  }
  // Before the record is read: an owner that ends in between has recorded its end.
  const Ownership found = find_owner(path);
  RunFolder run{.path = path, .owner = found.state};
  const std::string record = path + "/run.json", metrics = path + "/metrics.jsonl";
  try {
    if (const auto text = base::find_text_file(record))
      run.record = parse_run_record(*text, record);
  } catch (const Error& error) {
    run.problems.emplace_back(error.what());
  }
  run.metrics =
      read_metrics(metrics, run.record ? run.record->first_step : std::optional<int64_t>());
  run.problems.insert(run.problems.end(), run.metrics.problems.begin(), run.metrics.problems.end());
  run.last_write = std::max(last_write_time(record), last_write_time(metrics));
  read_logs(run);
  close_if_dead(run, found.owner);
  return run;
}

}  // namespace fullshard::report
