// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/metrics_tail.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"

namespace fullshard::report {
namespace {

constexpr int64_t kMostAtOnce = 64 * kMiB;  // the rest comes with the next look

// The text from there to the end of the last whole line.
std::string whole_lines_from(std::ifstream& file, int64_t begin, int64_t end) {
  std::string text(static_cast<size_t>(end - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), end - begin);
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t last = text.rfind('\n');
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

}  // namespace

std::vector<StepRecord> MetricsTail::read() {
  std::vector<StepRecord> records;
  if (!base::is_file(path_)) return records;
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : 0;
  has_restarted_ = size < read_bytes_;
  if (has_restarted_) read_bytes_ = 0;
  if (size == read_bytes_) return records;
  const std::string text =
      whole_lines_from(file, read_bytes_, std::min(size, read_bytes_ + kMostAtOnce));
  read_bytes_ += static_cast<int64_t>(text.size());
  for (std::string_view left = text; !left.empty();) {
    const size_t end = left.find('\n');
    try {
      records.push_back(parse_step_record(left.substr(0, end), path_));
    } catch (const Error&) {  // `report` says what is wrong with the file
    }
    left.remove_prefix(end + 1);
  }
  return records;
}

}  // namespace fullshard::report
