// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/one_bit_exchange.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fullshard/base/error.h"
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

using MakeExchange = decltype(&make_host_exchange);
constexpr std::pair<const char*, MakeExchange> kKinds[] = {{"host", make_host_exchange},
                                                           {"device", make_device_exchange}};

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

class OneBitExchanges : public ::testing::TestWithParam<std::pair<const char*, MakeExchange>> {
 protected:
  MakeExchange make = GetParam().second;
};
INSTANTIATE_TEST_SUITE_P(Kinds, OneBitExchanges, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return kind.param.first; });

TEST_P(OneBitExchanges, AgreeWithWholeTensorsInDoublePrecision) {
  for (const auto& [ranks, padded] : {std::pair(2, 5008), std::pair(3, 5040)}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const auto exchange = make(world.communicator(), make_pool(), {{"weight", kExchanged}});
      Naive naive(ranks, padded);
      const auto exp_avg = at::zeros({kExchanged});
      for (int round = 0; round < kRounds; ++round) {
        const auto own = gradient(round, world.rank());
        exchange->average({.beta1 = 0.5}, {{exp_avg, own}});
        naive.average(round);
        EXPECT_LT((exp_avg - naive.exp_avg).abs().max().item<double>(), 1e-5) << round;
      }
      const auto error = exchange->worker_error() - naive.worker_errors[world.rank()];
      EXPECT_LT(error.abs().max().item<double>(), 1e-5);
    });
  }
}

TEST_P(OneBitExchanges, SendThirtyOneTimesLessThanAnAllReduce) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    const auto exchange = make(world.communicator(), make_pool(), {{"weight", kExchanged}});
    const auto exp_avg = at::zeros({kExchanged}), own = gradient(0, world.rank());
    world.recorder().reset_totals();
    exchange->average({}, {{exp_avg, own}});
    // 4 bytes of scale, half of 5008 bits, and 3 to a multiple of 4; twice. On a device ranks also
    // tell each other which tensors have gradients, a byte each.
    const int64_t told = make == make_device_exchange ? 1 : 0;
    EXPECT_EQ(world.recorder().moved(), 2 * (4 + 313 + 3) + told);
    world.recorder().reset_totals();
    world.communicator().all_reduce(exp_avg).wait();
    EXPECT_EQ(world.recorder().moved(), 31 * 640 + 160);
  });
}

TEST_P(OneBitExchanges, LeaveTensorsWithoutGradientAlone) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    const auto exchange = make(world.communicator(), make_pool(), {{"used", 20}, {"unused", 30}});
    const auto used = at::zeros({20}), unused = at::full({30}, 0.25f);
    const auto own = gradient(0, world.rank());
    exchange->average({}, {{used, own.narrow(0, 0, 20)}, {unused, {}}});
    EXPECT_TRUE((used != 0).all().item<bool>());
    EXPECT_TRUE((unused == 0.25f).all().item<bool>());
    EXPECT_TRUE((exchange->worker_error().narrow(0, 32, 32) == 0).all().item<bool>());
    EXPECT_TRUE((exchange->server_error().narrow(0, 16, 16) == 0).all().item<bool>());
  });
}

TEST_P(OneBitExchanges, NameATensorThatSomeRanksHaveNoGradientOf) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    const auto exchange = make(world.communicator(), make_pool(), {{"first", 20}, {"odd", 30}});
    const auto first = at::zeros({20}), odd = at::zeros({30});
    const auto own = gradient(0, world.rank());
    const auto of_odd = world.rank() == 1 ? own.narrow(0, 0, 30) : at::Tensor();
    try {
      exchange->average({}, {{first, own.narrow(0, 0, 20)}, {odd, of_odd}});
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "OneBitAdam: parameter 'odd' has a gradient on rank 1 and none on rank 0; run "
                   "the same units on every rank");
    }
  });
}

// 16-bit states and gradients, tensors of all kinds of sizes, errors that build up.
TEST(OneBitExchange, GivesTheSameOnHostAndDevice) {
  for (const int ranks : {2, 3}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const std::vector<OneBitTensor> tensors = {{"a", 1}, {"b", 24}, {"c", 1000}, {"d", 7}};
      const auto host = make_host_exchange(world.communicator(), make_pool(), tensors);
      const auto device = make_device_exchange(world.communicator(), make_pool(), tensors);
      std::vector<OneBitExchange::Values> on_host, on_device;
      for (const auto& tensor : tensors) {
        on_host.push_back({at::zeros({tensor.numel}, at::kBFloat16)});
        on_device.push_back({at::zeros({tensor.numel}, at::kBFloat16)});
      }
      for (int round = 0; round < kRounds; ++round) {
        for (size_t i = 0; i < tensors.size(); ++i) {
          const auto own = gradient(round, world.rank())
                               .narrow(0, static_cast<int64_t>(i) * 10, tensors[i].numel)
                               .to(at::kBFloat16);
          on_host[i].gradient = on_device[i].gradient = own;
        }
        const MomentumStep step{.clip = 0.5, .beta1 = 0.75};
        host->average(step, on_host);
        device->average(step, on_device);
        for (size_t i = 0; i < tensors.size(); ++i) {
          EXPECT_TRUE(at::allclose(on_host[i].exp_avg.to(at::kFloat),
                                   on_device[i].exp_avg.to(at::kFloat), 1e-2, 1e-6))
              << "round " << round << ", " << tensors[i].name;
        }
      }
      EXPECT_TRUE(at::allclose(host->worker_error(), device->worker_error(), 1e-3, 1e-4));
      EXPECT_TRUE(at::allclose(host->server_error(), device->server_error(), 1e-3, 1e-4));
    });
  }
}

}  // namespace
}  // namespace fullshard::optim
