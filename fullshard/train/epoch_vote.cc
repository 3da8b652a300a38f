// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/epoch_vote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard {

EpochVote::EpochVote(Communicator communicator)
    : communicator_(std::move(communicator)),
      votes_(communicator_.allocate(communicator_.size(), at::kLong)),
      own_(votes_.narrow(0, communicator_.rank(), 1)) {}

bool EpochVote::all_have_data(int64_t num_left) {
  own_.fill_(num_left);
  communicator_.all_gather(votes_, own_, "epoch vote").wait();
  const auto votes = votes_.cpu();
  const auto* begin = votes.const_data_ptr<int64_t>();
  const auto* end = begin + votes.numel();
  const auto fewest = std::min_element(begin, end);
  // After the collective, so that all ranks find it.
  check(*fewest >= 0, "epoch vote: rank {} has {} micro-batches left, expected 0 or more",
        fewest - begin, *fewest);
  if (*fewest > 0) return true;
  dropped_.assign(begin, end);
  return false;
}

int64_t EpochVote::num_dropped() const {
  return std::accumulate(dropped_.begin(), dropped_.end(), int64_t{0});
}

std::string EpochVote::describe_dropped() const {
  std::vector<std::string> left;
  std::vector<size_t> empty;
  for (size_t rank = 0; rank < dropped_.size(); ++rank) {
    if (dropped_[rank] == 0) {
      empty.push_back(rank);
    } else {
      left.push_back(fmt::format("rank {}: {}", rank, dropped_[rank]));
    }
  }
  if (left.empty()) return {};
  const auto total = num_dropped();
  return fmt::format("{} micro-batch{} dropped ({}) when rank{} {} ran out of data", total,
                     total == 1 ? " was" : "es were", fmt::join(left, ", "),
                     empty.size() == 1 ? "" : "s", fmt::join(empty, ", "));
}

}  // namespace fullshard
