// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/name_match.h"

#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "fullshard/formats/input_error.h"

namespace fullshard::checkpoint {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<int64_t> shape_in_file(const ModelTensor& tensor, bool transposed) {
  auto shape = tensor.shape;
  if (transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

struct Candidate {
  std::string name;
  bool transposed = false;
};

// Every name that the tensor may have in a file, the best first.
std::vector<Candidate> candidates_of(const ModelTensor& tensor, const FileNames& names) {
  std::vector<Candidate> first, others;
  for (const auto& name : tensor.names) {
    const auto in_file = name_in_file(tensor, name, names);
    if (!in_file.name.empty()) first.push_back({in_file.name, in_file.transposed});
    for (const auto& other : in_file.others) others.push_back({other, in_file.transposed});
  }
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

class NameMatcher {
 public:
  explicit NameMatcher(const TensorSource& source) : source_(source) {}

  void add(const ModelTensor& tensor, const LoadOptions& options) {
    const auto candidates = candidates_of(tensor, options.names);
    for (const auto& candidate : candidates) known_.insert(candidate.name);
    if (options.is_left_out && options.is_left_out(tensor.names.front())) return;
    for (const auto& candidate : candidates) {
      const auto* stored = source_.find(candidate.name);
      if (stored == nullptr) continue;
      check_fits(tensor, candidate, *stored, options);
      matches_.push_back({&tensor, candidate.name, candidate.transposed});
      return;
    }
    if (candidates.empty() || !tensor.is_required) return;
    std::vector<std::string> looked_for;
    for (const auto& candidate : candidates) looked_for.push_back(candidate.name);
    note("missing: {} {}", fmt::join(looked_for, " or "),
         shape_text(shape_in_file(tensor, candidates[0].transposed)));
  }

  void look_for_extra(const LoadOptions& options) {
    for (const auto& stored : source_.tensors()) {
      if (known_.count(stored.name)) continue;
      if (options.is_ignored && options.is_ignored(stored.name)) continue;
      note("not expected: {} {}", stored.name, shape_text(stored.shape));
    }
  }

  std::vector<TensorMatch> result(const LoadOptions& options) {
    if (problems_.empty()) return std::move(matches_);
    const auto& tensors = source_.tensors();
    formats::fail_input("{}: the weights do not fit the model; {}\n  {}",
                        tensors.empty() ? "load_weights" : tensors.front().file, options.question,
                        fmt::join(problems_, "\n  "));
  }

 private:
  template <class... Parts>
  void note(fmt::format_string<Parts...> format, Parts&&... parts) {
    problems_.push_back(base::printable(fmt::format(format, std::forward<Parts>(parts)...)));
  }

  void check_fits(const ModelTensor& tensor, const Candidate& candidate, const StoredTensor& stored,
                  const LoadOptions& options) {
    if (is_made_from_rows(tensor, stored.dtype, options)) {
      return check_rows(tensor, candidate, stored);
    }
    const auto expected = shape_in_file(tensor, candidate.transposed);
    if (stored.shape != expected) {
      note("another shape: {} is {}, expected {}", stored.name, shape_text(stored.shape),
           shape_text(expected));
    }
    // Integers in the place of weights are quantised ones: their values mean something else.
    if (at::isFloatingType(stored.dtype) != at::isFloatingType(tensor.dtype)) {
      note("another dtype: {} is {}, expected one like {}", stored.name,
           c10::toString(stored.dtype), c10::toString(tensor.dtype));
    }
  }

  void check_rows(const ModelTensor& tensor, const Candidate& candidate,
                  const StoredTensor& stored) {
    const size_t row_dimension = candidate.transposed ? 1 : 0;
    const bool fits =
        stored.shape.size() == 2 && stored.shape[row_dimension] == tensor.shape[0] &&
        (tensor.shape.size() != 2 || stored.shape[1 - row_dimension] == tensor.shape[1]);
    if (fits) return;
    note("another shape: {} is {}, expected a matrix of {} rows for {}", stored.name,
         shape_text(stored.shape), tensor.shape[0], tensor.names.front());
  }

  const TensorSource& source_;
  std::set<std::string> known_;
  std::vector<TensorMatch> matches_;
  std::vector<std::string> problems_;
};

}  // namespace

bool is_made_from_rows(const ModelTensor& tensor, at::ScalarType in_file,
                       const LoadOptions& options) {
  return options.from_rows && !tensor.is_buffer && !tensor.shape.empty() &&
         !at::isFloatingType(tensor.dtype) && at::isFloatingType(in_file);
}

stored::NameInFile name_in_file(const ModelTensor& tensor, const std::string& name,
                                const FileNames& names) {
  if (!names) return {name, false, {}};
  auto in_file = names(name);
  const bool is_of_rows = !at::isFloatingType(tensor.dtype);  // LoadOptions::from_rows
  if (in_file.transposed && tensor.shape.size() != 2 && !is_of_rows) {
    fail_as(ErrorKind::usage,
            "file names: '{}' of shape {} is to be transposed, which has no "
            "meaning but for two dimensions",
            name, shape_text(tensor.shape));
  }
  return in_file;
}

std::vector<TensorMatch> match_names(const TensorSource& source,
                                     const std::vector<ModelTensor>& tensors,
                                     const LoadOptions& options) {
  NameMatcher matcher(source);
  for (const auto& tensor : tensors) matcher.add(tensor, options);
  matcher.look_for_extra(options);
  return matcher.result(options);
}

}  // namespace fullshard::checkpoint
