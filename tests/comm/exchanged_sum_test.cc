// SPDX-License-Identifier: Apache-2.0
// The exchange that NCCL carries, carried between threads here: its bits are those of gloo, which
// adds by ordered_sum.
#include "fullshard/comm/gpu/exchanged_sum.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "fullshard/comm/ordered_sum.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
namespace {

// Messages on their way, by sender and receiver, in the order in which they were sent.
class Mail {
 public:
  void send(int from, int to, const void* begin, int64_t bytes) {
    const auto* first = static_cast<const char*>(begin);
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].emplace_back(first, first + bytes);
    bytes_ += bytes;
    arrived_.notify_all();
  }
  void receive(int from, int to, void* begin, int64_t bytes) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    ASSERT_EQ(static_cast<int64_t>(box.front().size()), bytes);
    std::memcpy(begin, box.front().data(), box.front().size());
    box.pop_front();
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> boxes_;
  int64_t bytes_ = 0;
};

// What the kernel on a GPU does, element by element.
template <class Output, class Sum, class Row>
void add_rows(const RowSum& sum) {
  for (int64_t i = 0; i < sum.numel; ++i) {
    const auto value = [&](size_t row) {
      return static_cast<Sum>(static_cast<const Row*>(sum.rows[row])[i]);
    };
    Sum total = sum.start ? static_cast<const Sum*>(sum.start)[i] : value(0);
    for (size_t row = sum.start ? 0 : 1; row < sum.rows.size(); ++row) {
      const Sum next = value(row);
      const bool adds = sum.op == ReduceOp::sum || sum.op == ReduceOp::average;
      if (adds) total = total + next;
      if (sum.op == ReduceOp::max && next > total) total = next;
      if (sum.op == ReduceOp::min && next < total) total = next;
    }
    if (sum.divisor > 1) total = total * static_cast<Sum>(1.0 / static_cast<double>(sum.divisor));
    if (sum.addend) total = static_cast<Sum>(static_cast<const Output*>(sum.addend)[i]) + total;
    static_cast<Output*>(sum.output)[i] = static_cast<Output>(total);
  }
}

class MailCarrier : public SumCarrier {
 public:
  MailCarrier(Mail& mail, int rank, int max_rows) : mail_(mail), rank_(rank), max_rows_(max_rows) {}

  void exchange(std::span<const Message> sent, std::span<const Message> received) override {
    for (const auto& one : sent) mail_.send(rank_, one.peer, one.begin, one.bytes);
    for (const auto& one : received) mail_.receive(one.peer, rank_, one.begin, one.bytes);
  }
  void add(const RowSum& sum) override {
    ASSERT_LE(static_cast<int>(sum.rows.size()), max_rows_);
    const bool is_16_bit_out = sum.output_dtype == at::kBFloat16;
    if (sum.rows_dtype == at::kBFloat16) {
      is_16_bit_out ? add_rows<c10::BFloat16, float, c10::BFloat16>(sum)
                    : add_rows<float, float, c10::BFloat16>(sum);
    } else {
      is_16_bit_out ? add_rows<c10::BFloat16, float, float>(sum)
                    : add_rows<float, float, float>(sum);
    }
  }
  at::Tensor scratch(int64_t numel, at::ScalarType dtype) override {
    auto memory = at::full({numel}, 77, dtype);
    largest_scratch_ = std::max(largest_scratch_, static_cast<int64_t>(memory.nbytes()));
    return memory;
  }
  int max_rows() const override { return max_rows_; }
  int64_t largest_scratch() const { return largest_scratch_; }

 private:
  Mail& mail_;
  int rank_;
  int max_rows_;
  int64_t largest_scratch_ = 0;
};

struct Case {
  std::vector<int> hosts;
  int slices = 1;
  int64_t slice_numel = 37;
  at::ScalarType rows = at::kBFloat16, shard = at::kFloat;
  ReduceOp op = ReduceOp::average;
  bool accumulate = false;
  bool in_place = false;
  int64_t window_bytes = 64 << 20;
  int max_rows = 64;

  int size() const { return static_cast<int>(hosts.size()); }
  // A window of a wider buffer, so that slices do not touch.
  at::Tensor input(int rank) const {
    const auto values = (at::arange(slices * (slice_numel + 3), at::kDouble) * 0.37 + rank * 1.7);
    return values.sin().to(rows).view({slices, slice_numel + 3}).narrow(1, 0, slice_numel);
  }
  at::Tensor output(const at::Tensor& input, int rank) const {
    if (in_place) return input.select(0, rank % slices);
    return (at::arange(slice_numel, at::kDouble) * 0.11 + rank).cos().to(shard);
  }
  std::string text() const {
    return fmt::format("hosts [{}], {} slices of {}, accumulate {}, in place {}, window {}",
                       fmt::join(hosts, " "), slices, slice_numel, accumulate, in_place,
                       window_bytes);
  }
  ReduceOptions options() const { return {.op = op, .slices = slices, .accumulate = accumulate}; }
};

// The results of all cases by rank; they have the same hosts.
std::vector<std::vector<at::Tensor>> over_gloo(const std::vector<Case>& cases) {
  const auto& hosts = cases.front().hosts;
  std::vector<std::vector<at::Tensor>> results(hosts.size());
  const int ranks = static_cast<int>(hosts.size());
  run_ranks({.ranks = ranks, .backend = "gloo", .hosts = hosts}, [&](const World& world) {
    for (const Case& one : cases) {
      const auto input = one.input(world.rank());
      const auto output = one.output(input, world.rank());
      world.communicator().reduce_scatter(output, input, one.options()).wait();
      results[static_cast<size_t>(world.rank())].push_back(output);
    }
  });
  return results;
}

struct Exchanged {
  std::vector<at::Tensor> results;
  int64_t bytes = 0;            // of all messages
  int64_t largest_scratch = 0;  // of rank 0
};

Exchanged by_exchange(const Case& one) {
  Mail mail;
  Exchanged exchanged;
  exchanged.results.resize(one.hosts.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < one.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      MailCarrier carrier(mail, rank, one.max_rows);
      const auto input = one.input(rank);
      const auto output = one.output(input, rank);
      exchanged_sum(carrier, output, input,
                    {.rank = rank,
                     .hosts = one.hosts,
                     .options = one.options(),
                     .window_bytes = one.window_bytes});
      exchanged.results[static_cast<size_t>(rank)] = output;
      if (rank == 0) exchanged.largest_scratch = carrier.largest_scratch();
    });
  }
  for (auto& rank : ranks) rank.join();
  exchanged.bytes = mail.bytes();
  return exchanged;
}

void expect_the_bits_of_gloo(const std::vector<Case>& cases) {
  const auto expected = over_gloo(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto found = by_exchange(cases[i]).results;
    for (size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_TRUE(found[rank].equal(expected[rank][i])) << cases[i].text() << ", rank " << rank;
    }
  }
}

// One host, hosts of one rank, equal ones in order and dealt out in turn, unequal ones.
const std::vector<std::vector<int>> kHosts = {{0, 0, 0},    {0, 1, 2},          {0, 0, 1, 1},
                                              {0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 0, 1}};

TEST(ExchangedSum, HasTheBitsOfGlooForAllHostsSlicesAndWaysToWrite) {
  for (const auto& hosts : kHosts) {
    const int size = static_cast<int>(hosts.size());
    std::vector<Case> cases;
    for (int slices = 1; slices <= size; ++slices) {
      if (size % slices != 0) continue;
      for (const bool accumulate : {false, true}) {
        cases.push_back({.hosts = hosts, .slices = slices, .accumulate = accumulate});
        cases.push_back(cases.back());
        cases.back().shard = at::kBFloat16;
        cases.back().in_place = true;
        // Five elements of each rank at a time.
        cases.push_back({.hosts = hosts, .slices = slices, .accumulate = accumulate});
        cases.back().window_bytes = int64_t{2} * 5 * size;
      }
    }
    expect_the_bits_of_gloo(cases);
  }
}

TEST(ExchangedSum, HasTheBitsOfGlooForEveryOperation) {
  std::vector<Case> cases;
  for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::min}) {
    for (const int slices : {2, 4}) {
      cases.push_back({.hosts = {0, 0, 1, 1}, .slices = slices, .rows = at::kFloat, .op = op});
    }
  }
  expect_the_bits_of_gloo(cases);
}

TEST(ExchangedSum, GivesTheSameBitsWhereAPassHoldsFewRows) {
  expect_the_bits_of_gloo({{.hosts = {0, 0, 0, 0, 0}, .slices = 5, .max_rows = 2},
                           {.hosts = {0, 0, 0, 0, 0}, .slices = 1, .max_rows = 3}});
  expect_the_bits_of_gloo({{.hosts = {0, 1, 2, 3}, .slices = 1, .max_rows = 3}});
}

TEST(ExchangedSum, TakesFewerElementsThanThereAreRanks) {
  expect_the_bits_of_gloo({{.hosts = {0, 0, 1, 1}, .slices = 1, .slice_numel = 3},
                           {.hosts = {0, 0, 1, 1}, .slices = 1, .slice_numel = 1}});
}

// float(1 / 3) and not bf16(1 / 3): the mean of equal values is that value.
TEST(ExchangedSum, MultipliesByTheExactNumberOfRanks) {
  const Case one{.hosts = {0, 0, 0}, .slices = 3};
  const auto rows = [&](int rank) { return one.input(rank).to(at::kFloat); };
  const auto sum = (rows(0) + rows(1)) + rows(2);
  const auto expected = sum * static_cast<float>(1.0 / 3);
  const auto found = by_exchange(one).results;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(found[static_cast<size_t>(rank)].equal(expected.select(0, rank)));
  }
}

TEST(ExchangedSum, MovesEveryElementOnceInSixteenBits) {
  const Case one{.hosts = {0, 0, 0, 0}, .slices = 4, .slice_numel = 100};
  EXPECT_EQ(by_exchange(one).bytes, 4 * 3 * 100 * 2);
}

// Between hosts only sums travel: one fp32 row per rank, where the rows of four ranks in bf16
// would.
TEST(ExchangedSum, SendsBetweenHostsWhatTheirRanksHaveAdded) {
  const Case one{.hosts = {0, 0, 0, 0, 1, 1, 1, 1}, .slices = 8, .slice_numel = 100};
  const int64_t in_host = 8 * 3 * 2 * 100 * 2, between = 8 * 100 * 4;
  EXPECT_EQ(by_exchange(one).bytes, in_host + between);
}

TEST(ExchangedSum, HoldsNoMoreThanItsWindow) {
  const Case one{
      .hosts = {0, 0, 0, 0}, .slices = 4, .slice_numel = 100000, .window_bytes = 4 * 1000 * 2};
  EXPECT_EQ(by_exchange(one).largest_scratch, 4 * 1000 * 2);
}

}  // namespace
}  // namespace fullshard::comm
