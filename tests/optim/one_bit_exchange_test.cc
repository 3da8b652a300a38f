// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/one_bit_exchange.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fullshard/comm/world/world.h"

namespace fullshard::optim {
namespace {

constexpr int64_t kExchanged = 5000;  // several blocks, and a part of one
constexpr int kRounds = 4;

// Multiples of 1/64: the same on every machine, and zero among them.
at::Tensor gradient(int round, int rank) {
  auto generator = at::detail::createCPUGenerator(100 * round + rank);
  return at::randint(-127, 128, {kExchanged}, generator, at::kFloat) / 64;
}

std::shared_ptr<memory::Pool> make_pool() {
  return std::make_shared<memory::Pool>([](int64_t bytes) { return at::zeros({bytes}, at::kByte); },
                                        std::make_shared<Ledger>(), tiers::Tier::device);
}

Elements elements_of(const at::Tensor& tensor) { return {tensor.data_ptr(), at::kFloat}; }

// Signs times their scale, by whole tensors in fp64.
at::Tensor rounded(const at::Tensor& values) {
  const double scale =
      values.norm().item<double>() / std::sqrt(static_cast<double>(values.numel()));
  return at::where(values < 0, -scale, scale);
}

struct Naive {
  at::Tensor exp_avg, worker_errors, server_error;  // worker_errors: one row per rank

  explicit Naive(int ranks, int64_t padded)
      : exp_avg(at::zeros({kExchanged}, at::kDouble)),
        worker_errors(at::zeros({ranks, padded}, at::kDouble)),
        server_error(at::zeros({padded}, at::kDouble)) {}

  void average(int round) {
    const int64_t ranks = worker_errors.size(0);
    auto mean = at::zeros_like(server_error);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      auto error = worker_errors[rank];
      error.narrow(0, 0, kExchanged) +=
          exp_avg * 0.5 + gradient(round, static_cast<int>(rank)) * 0.5;
      const auto sent = rounded(error);
      error -= sent;
      mean += sent / ranks;
    }
    server_error += mean;
    std::vector<at::Tensor> chunks;
    for (const auto& chunk : server_error.chunk(ranks)) chunks.push_back(rounded(chunk));
    const auto result = at::cat(chunks);
    server_error -= result;
    exp_avg = result.narrow(0, 0, kExchanged);
  }
};

TEST(OneBitExchange, AgreesWithWholeTensorsInDoublePrecision) {
  for (const auto& [ranks, padded] : {std::pair(2, 5008), std::pair(3, 5040)}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      OneBitExchange exchange(world.communicator(), make_pool(), {{"weight", kExchanged}});
      Naive naive(ranks, padded);
      const auto exp_avg = at::zeros({kExchanged});
      for (int round = 0; round < kRounds; ++round) {
        const auto own = gradient(round, world.rank());
        exchange.average({.beta1 = 0.5}, {{elements_of(exp_avg), elements_of(own)}});
        naive.average(round);
        EXPECT_LT((exp_avg - naive.exp_avg).abs().max().item<double>(), 1e-5) << round;
      }
      const auto error = exchange.worker_error() - naive.worker_errors[world.rank()];
      EXPECT_LT(error.abs().max().item<double>(), 1e-5);
    });
  }
}

TEST(OneBitExchange, SendsTwentyOneTimesLessThanAnAllReduceOfTwoRanks) {
  run_ranks({.ranks = 2}, [](const World& world) {
    OneBitExchange exchange(world.communicator(), make_pool(), {{"weight", kExchanged}});
    const auto exp_avg = at::zeros({kExchanged}), own = gradient(0, world.rank());
    world.recorder().reset_totals();
    exchange.average({}, {{elements_of(exp_avg), elements_of(own)}});
    // 4 bytes of scale, 5008 bits, and 2 to a multiple of 4; then half of the bits, and 3.
    EXPECT_EQ(world.recorder().moved(), (4 + 626 + 2) + (4 + 313 + 3));
    world.recorder().reset_totals();
    world.communicator().all_reduce(exp_avg).wait();
    EXPECT_EQ(world.recorder().moved(), 21 * 952 + 8);
  });
}

TEST(OneBitExchange, LeavesTensorsWithoutGradientAlone) {
  run_ranks({.ranks = 2}, [](const World& world) {
    OneBitExchange exchange(world.communicator(), make_pool(), {{"used", 20}, {"unused", 30}});
    const auto used = at::zeros({20}), unused = at::full({30}, 0.25f);
    const auto own = gradient(0, world.rank());
    exchange.average({}, {{elements_of(used), elements_of(own)}, {elements_of(unused), {}}});
    EXPECT_TRUE((used != 0).all().item<bool>());
    EXPECT_TRUE((unused == 0.25f).all().item<bool>());
    EXPECT_TRUE((exchange.worker_error().narrow(0, 32, 32) == 0).all().item<bool>());
    EXPECT_TRUE((exchange.server_error().narrow(0, 16, 16) == 0).all().item<bool>());
  });
}

}  // namespace
}  // namespace fullshard::optim
