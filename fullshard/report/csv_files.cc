// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/csv_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/text_file.h"

namespace fullshard::report {
namespace {

constexpr std::string_view kHeaderStart = "step,";
constexpr std::string_view kLineEnd = "\r\n";

std::string file_name_of(std::string_view tag) {
  std::string name(tag);
  std::ranges::replace(name, '/', '_');
  return name + ".csv";
}

std::string header_of(std::string_view tag) {
  return fmt::format("{}{}{}", kHeaderStart, tag.substr(tag.rfind('/') + 1), kLineEnd);
}

std::optional<int64_t> place_of_line(std::string_view line) {
  int64_t place = 0;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), place);
  const bool is_place = problem == std::errc() && end != line.data() + line.size() && *end == ',';
  return is_place ? std::optional(place) : std::nullopt;
}

// The size up to which the lines after the last header are whole and none is after `last`. Absent
// if there is no header.
std::optional<size_t> kept_bytes(std::string_view text, int64_t last) {
  std::optional<size_t> kept;
  bool is_past = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find(kLineEnd, begin);
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + kLineEnd.size();
    if (line.starts_with(kHeaderStart)) {
      kept = begin;
      is_past = false;
      continue;
    }
    const auto place = place_of_line(line);
    is_past = is_past || !place || *place > last;
    if (kept && !is_past) kept = begin;
  }
  return kept;
}

}  // namespace

CsvFiles::CsvFiles(std::string folder, const MonitorOptions& options)
    : folder_(std::move(folder)), samples_per_step_(options.samples_per_step) {
  const bool is_of_run = options.csv.output_path.empty();
  for (const std::string_view tag : all_tags()) {
    const std::string path = folder_ + "/" + file_name_of(tag);
    const auto text = base::find_text_file(path, base::kAnyTextBytes);
    if (!text) continue;
    if (options.first_step > 0) {
      const int64_t scale = is_over_samples(tag) ? options.samples_per_step : 1;
      const auto kept = kept_bytes(*text, options.first_step * scale);
      if (!kept) continue;
      auto& file = files_[tag] = std::make_unique<AppendFile>(path);
      file->cut(static_cast<int64_t>(*kept));
    } else if (is_of_run) {
      AppendFile(path).cut(0);
    }
  }
}

void CsvFiles::add(const StepRecord& record) {
  for (const Scalar& scalar : scalars_over_steps(record)) add(scalar);
  for (const Scalar& scalar : scalars_over_samples(record, samples_per_step_)) add(scalar);
}

void CsvFiles::add(const Scalar& scalar) {
  std::string text = fmt::format("{},{}{}", scalar.at, scalar.value, kLineEnd);
  auto& file = files_[scalar.tag];
  if (!file) {
    file = std::make_unique<AppendFile>(folder_ + "/" + file_name_of(scalar.tag));
    text = header_of(scalar.tag) + text;
  }
  if (const auto cause = file->append(text)) {
    fail_as(ErrorKind::failed, "{}: cannot be written: {}", file->path(), *cause);
  }
}

}  // namespace fullshard::report
