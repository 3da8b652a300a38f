// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/inspect.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::data {
namespace {

constexpr int64_t kDense = int64_t{1} << 18;  // ids below are counted in a table
constexpr int64_t kBlockTokens = int64_t{1} << 16;

class Histogram {
 public:
  void add(int64_t token) {
    token < kDense ? ++dense_[static_cast<size_t>(token)] : ++sparse_[token];
  }

  std::vector<TokenCount> counts() const {
    std::vector<TokenCount> result;
    for (int64_t token = 0; token < kDense; ++token) {
      if (const int64_t count = dense_[static_cast<size_t>(token)])
        result.push_back({token, count});
    }
    for (const auto& [token, count] : sparse_) result.push_back({token, count});
    return result;
  }

 private:
  std::vector<int64_t> dense_ = std::vector<int64_t>(kDense);
  std::unordered_map<int64_t, int64_t> sparse_;
};

void check_documents(const TokenFile& file) {
  uint64_t last = 0;
  for (const uint64_t begin : file.documents()) {
    if (begin < last || begin > static_cast<uint64_t>(file.size())) {
      fail_as(ErrorKind::input, "{}: a document begins at token {}, after one at {}, of {} tokens",
              file.name(), begin, last, file.size());
    }
    last = begin;
  }
}

void check_token(const TokenFile& file, int64_t token, int64_t number, int64_t vocabulary) {
  if (vocabulary == 0 || token < vocabulary) return;
  fail_as(ErrorKind::input,
          "{}: token {} at byte {} (token number {}) is beyond the vocabulary of {}", file.name(),
          token, file.byte_of(number), number, vocabulary);
}

Histogram count_all(const TokenFile& file, int64_t vocabulary) {
  Histogram histogram;
  std::vector<int64_t> block;
  for (int64_t first = 0; first < file.size(); first += kBlockTokens) {
    block.resize(static_cast<size_t>(std::min(kBlockTokens, file.size() - first)));
    file.read(first, block);
    for (size_t i = 0; i < block.size(); ++i) {
      check_token(file, block[i], first + static_cast<int64_t>(i), vocabulary);
      histogram.add(block[i]);
    }
  }
  return histogram;
}

}  // namespace

TokenSummary inspect(const TokenFile& file, int64_t vocabulary, int64_t num_frequent) {
  check_documents(file);
  std::vector<TokenCount> counts = count_all(file, vocabulary).counts();
  const auto [least, most] = std::ranges::minmax(counts, {}, &TokenCount::token);
  TokenSummary summary{.layout = file.layout(),
                       .min_token = least.token,
                       .max_token = most.token,
                       .num_distinct = std::ssize(counts)};
  if (summary.layout.max_token != kUnknown && summary.layout.max_token != summary.max_token) {
    fail_as(ErrorKind::input, "{}: its header says that the largest token is {}, but it is {}",
            file.name(), summary.layout.max_token, summary.max_token);
  }
  std::ranges::sort(counts, [](const TokenCount& a, const TokenCount& b) {
    return a.count != b.count ? a.count > b.count : a.token < b.token;
  });
  counts.resize(std::min(counts.size(), static_cast<size_t>(num_frequent)));
  summary.most_frequent = std::move(counts);
  return summary;
}

}  // namespace fullshard::data
