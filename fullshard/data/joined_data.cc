// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/joined_data.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/crc32c.h"
#include "fullshard/base/error.h"
#include "fullshard/data/join_rows.h"
#include "fullshard/data/permutation.h"
#include "fullshard/data/random.h"

namespace fullshard::data {
namespace {

constexpr int64_t kPlacesPerBlock = 1024;

void check_there(int64_t number, int64_t size) {
  check(number >= 0 && number < size, "data: no example {}, there are {}", number, size);
}

// The rows of one batch, by the part that they come from.
class RowsByPart {
 public:
  explicit RowsByPart(size_t num_parts) : examples_(num_parts), rows_(num_parts) {}

  void add(size_t part, int64_t example) {
    examples_[part].push_back(example);
    rows_[part].push_back(num_rows_++);
  }

  // `batch(part, examples)` builds the rows of one part.
  template <class Make>
  TokenBatch batch(const Make& make) const {
    std::vector<TokenBatch> parts;
    std::vector<std::vector<int64_t>> places;
    for (size_t part = 0; part < examples_.size(); ++part) {
      if (examples_[part].empty()) continue;
      parts.push_back(make(part, examples_[part]));
      places.push_back(rows_[part]);
    }
    return parts.size() == 1 ? std::move(parts[0]) : join_rows(parts, places);
  }

 private:
  std::vector<std::vector<int64_t>> examples_, rows_;
  int64_t num_rows_ = 0;
};

template <class Parts, class DataOf>
int64_t largest_token(const Parts& parts, const DataOf& data_of) {
  int64_t most = 0;
  for (const auto& part : parts) {
    const int64_t own = data_of(part).max_token();
    if (own < 0) return -1;
    most = std::max(most, own);
  }
  return most;
}

// The parts are opened for one sequence length.
template <class Parts, class DataOf>
bool label_every_token(const Parts& parts, const DataOf& data_of) {
  return std::ranges::all_of(parts,
                             [&](const auto& part) { return data_of(part).labels_every_token(); });
}

template <class Parts, class DataOf>
std::vector<std::string> all_warnings(const Parts& parts, const DataOf& data_of) {
  std::vector<std::string> all;
  for (const auto& part : parts) {
    const auto own = data_of(part).warnings();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// Identifies the data by the tokens of some examples, so that it stays the same when files are
// moved.
uint32_t identity_of(const Dataset& data) {
  if (data.size() == 0) return 0;
  std::vector<int64_t> examples = {0, data.size() / 2, data.size() - 1};
  examples.erase(std::ranges::unique(examples).begin(), examples.end());
  const TokenBatch batch = data.batch(examples, /*seed=*/0, /*epoch=*/0);
  uint32_t sum = 0;
  for (const auto* part : {&batch.input_ids, &batch.labels}) {
    sum = base::crc32c(part->data(), static_cast<int64_t>(part->size() * sizeof(int64_t)), sum);
  }
  return sum;
}

const Dataset& data_in(const std::unique_ptr<Dataset>& part) { return *part; }
const Dataset& weighted_data_in(const WeightedData& part) { return *part.data; }

}  // namespace

JoinedData::JoinedData(std::vector<std::unique_ptr<Dataset>> parts) : parts_(std::move(parts)) {
  begins_.push_back(0);
  for (const auto& part : parts_) begins_.push_back(begins_.back() + part->size());
}

TokenBatch JoinedData::batch(std::span<const int64_t> examples, uint64_t seed,
                             int64_t epoch) const {
  RowsByPart rows(parts_.size());
  for (const int64_t example : examples) {
    check_there(example, size());
    const auto after = std::ranges::upper_bound(begins_, example);
    const auto part = static_cast<size_t>(after - begins_.begin()) - 1;
    rows.add(part, example - begins_[part]);
  }
  return rows.batch([&](size_t part, const std::vector<int64_t>& own) {
    return parts_[part]->batch(own, seed, epoch);
  });
}

bool JoinedData::labels_every_token() const { return label_every_token(parts_, data_in); }
int64_t JoinedData::max_token() const { return largest_token(parts_, data_in); }
std::vector<std::string> JoinedData::warnings() const { return all_warnings(parts_, data_in); }

std::string JoinedData::describe() const {
  std::string text;
  for (const auto& part : parts_) text += (text.empty() ? "" : "; ") + part->describe();
  return text;
}

MixedData::MixedData(std::vector<WeightedData> parts, uint64_t seed, Order asked)
    : parts_(std::move(parts)),
      seed_(mix_bits(seed, 0x6d6978)),
      asked_(asked),
      totals_(parts_.size(), 0) {
  double total = 0;
  for (const WeightedData& part : parts_) {
    check(part.weight > 0, "data: a weight of {}, expected more than 0", part.weight);
    total += part.weight;
    size_ += part.data->size();
  }
  double bound = 0;
  for (const WeightedData& part : parts_) bounds_.push_back(bound += part.weight / total);
  for (int64_t number = 0; number < size_; ++number) {
    if (number % kPlacesPerBlock == 0) {
      counts_.insert(counts_.end(), totals_.begin(), totals_.end());
    }
    ++totals_[part_of(number)];
  }
}

size_t MixedData::part_of(int64_t number) const {
  const double drawn = CounterRandom(seed_, 0, static_cast<uint64_t>(number)).uniform();
  const auto found = std::ranges::upper_bound(bounds_, drawn);
  return std::min(static_cast<size_t>(found - bounds_.begin()), bounds_.size() - 1);
}

int64_t MixedData::num_before(size_t part, int64_t number) const {
  const int64_t block = number / kPlacesPerBlock;
  int64_t count = counts_[static_cast<size_t>(block) * parts_.size() + part];
  for (int64_t other = block * kPlacesPerBlock; other < number; ++other) {
    count += static_cast<int64_t>(part_of(other) == part);
  }
  return count;
}

MixedData::Place MixedData::place(int64_t number, int64_t epoch) const {
  check_there(number, size_);
  const size_t part = part_of(number);
  // A checkpoint may name any epoch: unsigned, so that no place is before the first.
  const uint64_t taken = static_cast<uint64_t>(epoch) * static_cast<uint64_t>(totals_[part]) +
                         static_cast<uint64_t>(num_before(part, number));
  const int64_t size = parts_[part].data->size();
  const auto rounds = static_cast<int64_t>(taken / static_cast<uint64_t>(size));
  const Permutation order(size, mix_bits(seed_, part), rounds);
  return {part, order(static_cast<int64_t>(taken % static_cast<uint64_t>(size)))};
}

TokenBatch MixedData::batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const {
  RowsByPart rows(parts_.size());
  for (const int64_t example : examples) {
    const Place found = place(example, epoch);
    rows.add(found.part, found.example);
  }
  return rows.batch([&](size_t part, const std::vector<int64_t>& own) {
    return parts_[part].data->batch(own, seed, epoch);
  });
}

bool MixedData::labels_every_token() const { return label_every_token(parts_, weighted_data_in); }
int64_t MixedData::max_token() const { return largest_token(parts_, weighted_data_in); }
std::vector<std::string> MixedData::warnings() const {
  std::vector<std::string> all = all_warnings(parts_, weighted_data_in);
  if (asked_ == Order::sequential) {
    all.emplace_back(
        "--order: is sequential, but --data mixes data sets by weights: their examples are drawn "
        "by the seed; give --data without weights for the order of the files");
  }
  return all;
}

std::string MixedData::mixture() const {
  std::string text;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Dataset& data = *parts_[i].data;
    text += fmt::format("{}{:.6g} of {} ({:08x})", text.empty() ? "" : ", ", share_of(i),
                        data.size(), identity_of(data));
  }
  return text;
}

std::string MixedData::describe() const {
  std::string text;
  for (size_t i = 0; i < parts_.size(); ++i) {
    text += fmt::format("{}{:.3g} of {}", text.empty() ? "" : "; ", share_of(i),
                        parts_[i].data->describe());
  }
  return text;
}

}  // namespace fullshard::data
