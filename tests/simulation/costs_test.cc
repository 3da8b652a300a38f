// SPDX-License-Identifier: Apache-2.0
// Links and kernels against formulas worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/simulation/kernel_cost.h"
#include "fullshard/simulation/link_cost.h"
#include "tests/errors.h"

namespace fullshard::simulation {
namespace {

constexpr double kLaunch = 8.4e-6;

// 100 GB/s inside and 10 between are reached.
Cluster round_cluster(double inside_latency = 0, double between_latency = 0) {
  Cluster cluster;
  cluster.gpu.memory_bandwidth = 1e12 / kMemoryShare;
  cluster.gpu.bf16_flops = 100e12;
  cluster.gpu.attention_flops = 50e12;
  cluster.inside = {100e9 / kReachedShare, inside_latency};
  cluster.between = {10e9 / kReachedShare, between_latency};
  cluster.bus_bandwidth = 20e9;
  return cluster;
}

Collective call_of(Operation operation, int64_t bytes, comm::GroupShape shape, int slices) {
  return {.operation = operation, .bytes = bytes, .shape = shape, .slices = slices};
}

TEST(LinkCost, IsARingInsideAHost) {
  const auto gather = call_of(Operation::all_gather, 800'000'000, {8, 8}, 8);
  EXPECT_NEAR(seconds_of(gather, round_cluster()), kLaunch + 7e-3, 1e-12);
  const auto sums = call_of(Operation::reduce_scatter, 800'000'000, {8, 8}, 8);
  EXPECT_NEAR(seconds_of(sums, round_cluster()), kLaunch + 7e-3, 1e-12);
}

TEST(LinkCost, TakesEveryGpusShareOfTheNetworkBetweenHosts) {
  // 16 ranks on two hosts: 15/16 of the bytes at 80 GB/s.
  const auto gather = call_of(Operation::all_gather, 1'600'000'000, {16, 8}, 16);
  EXPECT_NEAR(seconds_of(gather, round_cluster()), kLaunch + 1.5 / 80, 1e-12);
  // One rank of each host: its own share only.
  const auto replicas = call_of(Operation::all_gather, 1'600'000'000, {2, 1}, 2);
  EXPECT_NEAR(seconds_of(replicas, round_cluster()), kLaunch + 0.8 / 10, 1e-12);
}

TEST(LinkCost, NoNetworkIsFasterThanTheHostsOwnLinks) {
  Cluster cluster = round_cluster();
  cluster.between.bandwidth = 1e15;
  const auto gather = call_of(Operation::all_gather, 1'600'000'000, {16, 8}, 16);
  EXPECT_NEAR(seconds_of(gather, cluster), kLaunch + 1.5 / 100, 1e-12);
}

TEST(LinkCost, SumsForAllGoAroundTwiceOrUpAndDownATree) {
  const auto large = call_of(Operation::all_reduce, 800'000'000, {8, 8}, 1);
  EXPECT_NEAR(seconds_of(large, round_cluster()), kLaunch + 2 * 7e-3, 1e-12);
  // Nothing to carry, 64 hosts of 8: by the protocol of small messages, a tree of depth 6.
  const auto small = call_of(Operation::all_reduce, 0, {512, 8}, 1);
  EXPECT_NEAR(seconds_of(small, round_cluster(1e-6, 10e-6)),
              2 * (7 * 0.18 * 1e-6 + 6 * 0.19 * 10e-6), 1e-15);
  // A reduction into one slice is the same.
  const auto slice = call_of(Operation::reduce_scatter, 800'000'000, {8, 8}, 1);
  EXPECT_EQ(seconds_of(slice, round_cluster()), seconds_of(large, round_cluster()));
}

TEST(LinkCost, CountsHopsInsideAndBetween) {
  // Empty, over 2 hosts of 8: 14 hops inside, one between, by the quickest protocol.
  const auto gather = call_of(Operation::all_gather, 0, {16, 8}, 16);
  EXPECT_NEAR(seconds_of(gather, round_cluster(1e-6, 10e-6)),
              kLaunch + 14 * 0.18 * 1e-6 + 0.19 * 10e-6, 1e-15);
  // Large: plain messages, whose bandwidth outweighs their latency.
  const auto large = call_of(Operation::all_gather, 1'600'000'000, {16, 8}, 16);
  EXPECT_NEAR(seconds_of(large, round_cluster(1e-6, 10e-6)), kLaunch + 24e-6 + 1.5 / 80, 1e-12);
}

TEST(LinkCost, FewerSlicesThanRanksPassTheirSumsOn) {
  // 8 ranks, 4 slices: 7/8 to reduce, and one more of eight parts for the replica.
  const auto sums = call_of(Operation::reduce_scatter, 800'000'000, {8, 8}, 4);
  EXPECT_NEAR(seconds_of(sums, round_cluster()), kLaunch + 8e-3, 1e-12);
}

// Two hosts of two ranks: half of the bytes cross, at 2 x 10 GB/s; inside half of them are copied.
TEST(LinkCost, OfHostsCrossesTheNetworkOnce) {
  Cluster cluster = round_cluster();
  cluster.collectives = CollectiveAlgorithm::hosts;
  cluster.inside = {100e9, 1e-6};
  cluster.between = {10e9, 5e-6};
  const auto gather = call_of(Operation::all_gather, 1'000'000'000, {4, 2}, 4);
  EXPECT_NEAR(seconds_of(gather, cluster), 5e-6 + 25e-3, 1e-12);
  const auto sums = call_of(Operation::all_reduce, 1'000'000'000, {4, 2}, 4);
  EXPECT_NEAR(seconds_of(sums, cluster), 2 * (5e-6 + 25e-3), 1e-12);
  const auto inside = call_of(Operation::all_gather, 1'000'000'000, {2, 2}, 2);
  EXPECT_NEAR(seconds_of(inside, cluster), 1e-6 + 5e-3, 1e-12);
  cluster.between.bandwidth = 1000e9;
  EXPECT_NEAR(seconds_of(gather, cluster), 5e-6 + 5e-3, 1e-12);  // memory is slower
}

// Each of two ranks copies half of the bytes itself; of four on two hosts each also sends and
// receives a quarter of them.
TEST(LinkCost, OfHostsIsCopiedByTheCoresThatCompute) {
  Cluster cluster = round_cluster();
  const auto inside = call_of(Operation::all_gather, 1'000'000'000, {2, 2}, 2);
  const auto crossing = call_of(Operation::all_gather, 1'000'000'000, {4, 2}, 4);
  EXPECT_EQ(share_of(inside, cluster), kNcclShare);
  cluster.collectives = CollectiveAlgorithm::hosts;
  cluster.inside = {100e9, 0};
  cluster.between = {10e9, 0};
  EXPECT_EQ(share_of(inside, cluster), 1);
  EXPECT_NEAR(share_of(crossing, cluster), 5e-3 / 25e-3, 1e-12);
  cluster.socket_bandwidth = 25e9;
  EXPECT_NEAR(share_of(crossing, cluster), (5e-3 + 10e-3) / 25e-3, 1e-12);
  cluster.socket_bandwidth = 5e9;
  EXPECT_EQ(share_of(crossing, cluster), 1);
  EXPECT_EQ(share_of(call_of(Operation::all_gather, 1000, {1, 1}, 1), cluster), 0);
}

// Of 16 ranks on two hosts of eight: a ring has one link of eight between the hosts.
TEST(LinkCost, CountsWhatARankSends) {
  const auto gather = sent_bytes(call_of(Operation::all_gather, 1600, {16, 8}, 16));
  EXPECT_EQ(gather.all, 1500);
  EXPECT_EQ(gather.between_hosts, 1500.0 / 8);
  const auto sum = sent_bytes(call_of(Operation::all_reduce, 1600, {8, 8}, 1));
  EXPECT_EQ(sum.all, 2 * 1400);
  EXPECT_EQ(sum.between_hosts, 0);
  EXPECT_EQ(sent_bytes(call_of(Operation::all_reduce, 1600, {2, 1}, 1)).between_hosts, 1600);
  EXPECT_EQ(sent_bytes(call_of(Operation::all_gather, 1600, {1, 1}, 1)).all, 0);
}

TEST(LinkCost, OneRankTakesNoTime) {
  EXPECT_EQ(seconds_of(call_of(Operation::all_gather, 1 << 30, {1, 1}, 1), round_cluster()), 0);
}

TEST(KernelCost, IsTheSlowerOfComputingAndMoving) {
  using Kind = tensor::OperatorKind;
  const auto seconds = [](Kind kind, double flops, int64_t bytes,
                          at::ScalarType dtype = at::kBFloat16) {
    return seconds_of({.name = "x", .kind = kind, .dtype = dtype, .flops = flops, .bytes = bytes},
                      round_cluster(), {});
  };
  EXPECT_NEAR(seconds(Kind::product, 100e9, 1000), kKernelGap + 1e-3, 1e-12);
  EXPECT_NEAR(seconds(Kind::product, 100, 1'000'000'000), kKernelGap + 1e-3, 1e-12);
  EXPECT_NEAR(seconds(Kind::attention, 100e9, 1000), kKernelGap + 2e-3, 1e-12);
  EXPECT_NEAR(seconds(Kind::memory, 0, 2'000'000'000), kKernelGap + 2e-3, 1e-12);
  EXPECT_NEAR(seconds(Kind::product, 100e9, 1000, at::kFloat), kKernelGap + 15e-3, 1e-12);
  EXPECT_NEAR(seconds(Kind::to_device, 0, 20'000'000), 1e-3, 1e-12);
  EXPECT_NEAR(seconds(Kind::to_host, 0, 20'000'000), 1e-3, 1e-12);
}

constexpr const char* kTable = R"({"device": "a card", "kernels": [
  {"name": "mm", "dims": [1, 2, 3, 4], "dtype": "BFloat16", "seconds": 0.5},
  {"name": "memory", "bytes": 100, "seconds": 1.0}, {"name": "memory", "bytes": 300, "seconds": 2.0}]})";

TEST(KernelCost, WaitsForTheSlowestOfTheGpus) {
  Cluster cluster = Cluster::load("h100");
  cluster.gpu.spread = 0.02;
  EXPECT_EQ(slowest_factor(cluster, 1), 1);
  // The expected largest of 8, 128 and 512 normal numbers: 1.42, 2.60 and 3.04.
  EXPECT_NEAR(slowest_factor(cluster, 8), 1 + 0.02 * 1.42, 8e-4);
  EXPECT_NEAR(slowest_factor(cluster, 128), 1 + 0.02 * 2.60, 8e-4);
  EXPECT_NEAR(slowest_factor(cluster, 512), 1 + 0.02 * 3.04, 8e-4);
  cluster.gpu.spread = 0;
  EXPECT_EQ(slowest_factor(cluster, 512), 1);
}

// Gradients are in e5m2 where --precision fp8 says nothing else.
TEST(KernelCost, BothFormatsOfFp8HaveItsRate) {
  const Cluster cluster = Cluster::load("h100");
  tensor::OperatorCall call{.kind = tensor::OperatorKind::product, .flops = 1e15};
  for (const auto dtype : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    call.dtype = dtype;
    EXPECT_NEAR(seconds_of(call, cluster, {}), 1e15 / cluster.gpu.fp8_flops, 1e-5);
  }
  call.dtype = at::kBFloat16;
  EXPECT_NEAR(seconds_of(call, cluster, {}), 1e15 / cluster.gpu.bf16_flops, 1e-5);
}

TEST(KernelTable, AnswersForShapesThatWereTimed) {
  using Kind = tensor::OperatorKind;
  const auto table = KernelTable::parse(kTable, "t.json");
  tensor::OperatorCall product{
      .name = "mm", .kind = Kind::product, .dims = {1, 2, 3, 4}, .dtype = at::kBFloat16};
  EXPECT_EQ(table.seconds_of(product), 0.5);
  EXPECT_EQ(seconds_of(product, round_cluster(), table), kKernelGap + 0.5);
  product.dims[3] = 5;
  EXPECT_EQ(table.seconds_of(product), std::nullopt);
  // Dropped scores take the time of those that are not, where nobody timed them.
  tensor::OperatorCall attention{.name = "causal_dropped_attention",
                                 .kind = Kind::attention,
                                 .dims = {1, 2, 3, 4, 5},
                                 .dtype = at::kBFloat16};
  const KernelTable plain("", {{"causal_attention", attention.dims, "BFloat16", 0, 2}});
  const KernelTable both("", {{"causal_attention", attention.dims, "BFloat16", 0, 2},
                              {attention.name, attention.dims, "BFloat16", 0, 3}});
  EXPECT_EQ(plain.seconds_of(attention), 2);
  EXPECT_EQ(both.seconds_of(attention), 3);
  attention.name = "attention";
  EXPECT_EQ(both.seconds_of(attention), std::nullopt);
  const auto memory = [&](int64_t bytes) {
    return table.seconds_of({.name = "add", .bytes = bytes}).value();
  };
  EXPECT_DOUBLE_EQ(memory(10), 1);
  EXPECT_DOUBLE_EQ(memory(200), 1.5);
  EXPECT_DOUBLE_EQ(memory(600), 4);
  // What it writes it reads.
  const auto again = KernelTable::parse(table.json(), "again");
  EXPECT_EQ(again.device(), "a card");
  EXPECT_EQ(again.json(), table.json());
}

TEST(KernelTable, OfOurOwnMachineComesWithItsPreset) {
  const auto table = KernelTable::of_preset("h200");
  EXPECT_EQ(table.device(), "NVIDIA H200");
  // A product of llama-1.1b's feed-forward at 8 x 2048, near 600 TFLOP/s.
  const auto seconds = table.seconds_of({.name = "mm",
                                         .kind = tensor::OperatorKind::product,
                                         .dims = {1, 16384, 2048, 5632},
                                         .dtype = at::kBFloat16});
  ASSERT_TRUE(seconds.has_value());
  EXPECT_NEAR(2.0 * 16384 * 2048 * 5632 / *seconds / 1e12, 650, 150);
  EXPECT_EQ(KernelTable::of_preset("a100-80").device(), "");
}

TEST(KernelTable, TellsWhatIsWrongWithAFile) {
  const auto problem = [](const std::string& text) {
    return testing::message_of([&] { KernelTable::parse(text, "t.json"); });
  };
  EXPECT_THAT(problem("{}"),
              ::testing::StartsWith("t.json: is not a kernel table of fullshard bench kernels"));
  EXPECT_EQ(problem("{"), "t.json: is not valid JSON at column 2");
  EXPECT_EQ(problem(R"({"kernels": [{"name": "memory", "bytes": 0, "seconds": 1}]})"),
            "t.json: kernel 1 of memory: a time or size that is not above zero");
  EXPECT_EQ(testing::message_of([] { KernelTable::load("/nowhere/t.json"); }),
            "--kernels: there is no file '/nowhere/t.json'");
}

}  // namespace
}  // namespace fullshard::simulation
