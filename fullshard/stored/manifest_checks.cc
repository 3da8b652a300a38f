// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::stored {
namespace {

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  std::string what;
};

class Checker {
 public:
  Checker(const Manifest& manifest, const std::string& where)
      : manifest_(manifest), where_(where), used_(manifest.files.size()) {}

  void check_files() const {
    std::set<std::string> names;
    for (const auto* files : {&manifest_.files, &manifest_.side_files}) {
      for (const auto& file : *files) {
        formats::check_input(names.insert(file.name).second, "{}: names the file '{}' twice",
                             where_, file.name);
        check_sums_of(file);
      }
    }
  }

  void check_tensors() {
    std::set<std::string> names;
    for (const auto& tensor : manifest_.tensors) {
      for (const auto& name : tensor.names) {
        formats::check_input(names.insert(name).second, "{}: names the tensor '{}' twice", where_,
                             name);
      }
      const auto numel = checked_numel(tensor.shape);
      formats::check_input(numel.has_value(), "{}: tensor '{}' has the invalid shape {}", where_,
                           tensor.names.front(), format_shape(tensor.shape));
      check_values(tensor, "weights", tensor.weights, *numel);
      for (const auto& [state, values] : tensor.states) {
        check_values(tensor, state, values, *numel);
      }
    }
  }

  // No two pieces may share a byte.
  void check_bytes() {
    for (size_t file = 0; file < used_.size(); ++file) {
      auto& ranges = used_[file];
      std::sort(ranges.begin(), ranges.end(),
                [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
      for (size_t i = 1; i < ranges.size(); ++i) {
        formats::check_input(
            ranges[i - 1].end <= ranges[i].begin, "{}: {} and {} share bytes {} to {} of '{}'",
            where_, ranges[i - 1].what, ranges[i].what, ranges[i].begin,
            std::min(ranges[i - 1].end, ranges[i].end), manifest_.files[file].name);
      }
    }
  }

 private:
  void check_sums_of(const StoredFile& file) const {
    formats::check_input(static_cast<int64_t>(file.checksums.size()) == num_blocks(file.bytes),
                         "{}: file '{}' of {} bytes has {} checksums, expected {}", where_,
                         file.name, file.bytes, file.checksums.size(), num_blocks(file.bytes));
  }

  void check_values(const ManifestTensor& tensor, const std::string& kind,
                    const StoredValues& values, int64_t numel) {
    const auto what = fmt::format("{} of '{}'", kind, tensor.names.front());
    const int64_t size = find_element_type(values.dtype)->bits / 8;
    int64_t next = 0;
    for (const auto& interval : values.intervals) {
      formats::check_input(interval.begin >= next, "{}: {}: elements {} to {} occur twice", where_,
                           what, interval.begin, std::min(next, interval.end));
      formats::check_input(interval.begin == next, "{}: {}: elements {} to {} are missing", where_,
                           what, next, interval.begin);
      formats::check_input(interval.end > interval.begin && interval.end <= numel,
                           "{}: {}: elements {} to {} are not in a tensor of shape {}", where_,
                           what, interval.begin, interval.end, format_shape(tensor.shape));
      check_place(what, interval, size);
      next = interval.end;
    }
    formats::check_input(next == numel, "{}: {}: elements {} to {} are missing", where_, what, next,
                         numel);
  }

  void check_place(const std::string& what, const StoredInterval& interval, int64_t size) {
    formats::check_input(static_cast<size_t>(interval.file) < manifest_.files.size(),
                         "{}: {} is in file number {}, but there are {}", where_, what,
                         interval.file, manifest_.files.size());
    const auto& file = manifest_.files[static_cast<size_t>(interval.file)];
    int64_t bytes = 0;
    int64_t end = 0;
    const bool fits = !__builtin_mul_overflow(interval.end - interval.begin, size, &bytes) &&
                      !__builtin_add_overflow(interval.offset, bytes, &end) && end <= file.bytes;
    formats::check_input(
        fits,
        "{}: {}: elements {} to {} begin at byte {} of '{}' and reach beyond its end "
        "at {}",
        where_, what, interval.begin, interval.end, interval.offset, file.name, file.bytes);
    formats::check_input(interval.offset % size == 0,
                         "{}: {}: byte {} of '{}' is not a multiple of {}", where_, what,
                         interval.offset, file.name, size);
    used_[static_cast<size_t>(interval.file)].push_back({interval.offset, end, what});
  }

  const Manifest& manifest_;
  const std::string& where_;
  std::vector<std::vector<ByteRange>> used_;  // of each file
};

}  // namespace

void check_manifest(const Manifest& manifest, const std::string& where) {
  for (const StoredFile& file : manifest.files) {
    formats::check_input(file.rank >= 0 && file.rank < manifest.num_ranks,
                         "{}: rank {} wrote '{}', but {} rank{} saved the checkpoint", where,
                         file.rank, file.name, manifest.num_ranks,
                         manifest.num_ranks == 1 ? "" : "s");
  }
  Checker checker(manifest, where);
  checker.check_files();
  checker.check_tensors();
  checker.check_bytes();
}

void check_file(const StoredFile& file, const std::string& folder) {
  const auto path = fmt::format("{}/{}", folder, file.name);
  struct stat facts = {};
  const bool is_there = ::stat(path.c_str(), &facts) == 0;
  formats::check_input(is_there, "{}: cannot be found: {}; rank {} wrote it", path,
                       std::strerror(errno), file.rank);
  formats::check_input(
      facts.st_size == file.bytes,
      "{}: has {} bytes, the checkpoint's manifest says {}; the file is {}: copy it again or "
      "use another checkpoint",
      path, facts.st_size, file.bytes,
      facts.st_size < file.bytes ? "truncated" : "not the one that was written");
}

void check_files(const Manifest& manifest, const std::string& folder) {
  for (const auto& file : manifest.files) {
    const auto path = fmt::format("{}/{}", folder, file.name);
    const bool may_be_elsewhere = manifest.is_node_local && ::access(path.c_str(), F_OK) != 0;
    if (!may_be_elsewhere) check_file(file, folder);
  }
}

}  // namespace fullshard::stored
