// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/simulation/quantity.h"
#include "tests/errors.h"

namespace fullshard::simulation {
namespace {

constexpr const char* kFile = R"(gpu:
  memory: 80GB
  memory_bandwidth: 3TB/s
  bf16_tflops: 600
gpus_per_host: 4
inside: {bandwidth: 450GB/s, latency: 3us}
between: {bandwidth: 400Gb/s, latency: 10us}
bus: 50GB/s
)";

std::string problem_of(const std::string& text) {
  return testing::message_of([&] { read_cluster(text, "c.yaml"); });
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kFile;
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos);
  return text.replace(place, from.size(), to);
}

TEST(Cluster, IsReadFromAFile) {
  const auto cluster = read_cluster(kFile, "c.yaml");
  EXPECT_EQ(cluster.name, "c.yaml");
  EXPECT_EQ(cluster.gpu.memory_bytes, 80'000'000'000);
  EXPECT_EQ(cluster.gpu.memory_bandwidth, 3e12);
  EXPECT_EQ(cluster.gpu.bf16_flops, 600e12);
  EXPECT_EQ(cluster.gpu.attention_flops, 360e12);  // unless the file says more
  EXPECT_EQ(cluster.gpus_per_host, 4);
  EXPECT_EQ(cluster.inside.bandwidth, 450e9);
  EXPECT_DOUBLE_EQ(cluster.inside.latency, 3e-6);
  EXPECT_EQ(cluster.between.bandwidth, 50e9);
  EXPECT_EQ(cluster.bus_bandwidth, 50e9);
}

TEST(Cluster, NamesLineAndNearestKeyOfATypo) {
  EXPECT_EQ(problem_of(changed("bf16_tflops", "bf16_tflop")),
            "c.yaml:1: gpu.bf16_tflops: is missing, expected a number of TFLOP/s, such as "
            "640\nerror: c.yaml:4: gpu.bf16_tflop: no such key; did you mean 'bf16_tflops'?");
  EXPECT_EQ(problem_of(changed("bus:", "memory_of_hosts:")),
            "c.yaml: bus: is missing, expected a rate, such as 450GB/s or 400Gb/s\nerror: "
            "c.yaml:8: memory_of_hosts: no such key; known keys are gpu, gpus_per_host, inside, "
            "between, bus, disk, collectives");
  EXPECT_EQ(problem_of(std::string(kFile) + "collectives: mpi\n"),
            "c.yaml:9: collectives: is 'mpi', expected nccl or hosts");
  EXPECT_EQ(read_cluster(std::string(kFile) + "collectives: hosts\n", "c.yaml").collectives,
            CollectiveAlgorithm::hosts);
}

TEST(Cluster, HasCostsOfSocketsWhereCoresServeThem) {
  const auto text = changed("latency: 10us", "latency: 10us, sockets: 300MB/s");
  EXPECT_EQ(read_cluster(text + "collectives: hosts\n", "c.yaml").socket_bandwidth, 3e8);
  EXPECT_EQ(problem_of(text),
            "c.yaml:7: between.sockets: has an effect only with 'collectives: hosts'; with NCCL "
            "the GPUs send by themselves");
}

TEST(Cluster, TakesNoMemoryWithoutAUnit) {
  EXPECT_EQ(
      problem_of(changed("80GB", "80")),
      "c.yaml:2: gpu.memory: is '80', expected a size with a unit, such as 80GB, at least 1MB");
  EXPECT_EQ(read_cluster(changed("80GB", "80e9"), "c.yaml").gpu.memory_bytes, 80'000'000'000);
}

TEST(Cluster, RefusesWhatIsNotAboveZeroOrNoSuchQuantity) {
  EXPECT_EQ(problem_of(changed("400Gb/s", "0Gb/s")),
            "c.yaml:7: between.bandwidth: is '0Gb/s', expected a rate, such as 450GB/s or 400Gb/s, "
            "above zero");
  EXPECT_EQ(
      problem_of(changed("80GB", "-3")),
      "c.yaml:2: gpu.memory: is '-3', expected a size with a unit, such as 80GB, at least 1MB");
  EXPECT_EQ(problem_of(changed("600", "many")),
            "c.yaml:4: gpu.bf16_tflops: is 'many', expected a number of TFLOP/s, such as 640, "
            "above zero");
  EXPECT_EQ(
      problem_of(changed("gpus_per_host: 4", "gpus_per_host: 2.5")),
      "c.yaml:5: gpus_per_host: is '2.5', expected a whole number from 1 to 1024, above zero");
  for (const std::string share : {"0.5", "-0.1", "2 %"}) {
    EXPECT_EQ(problem_of(changed("bf16_tflops: 600", "bf16_tflops: 600\n  spread: " + share)),
              "c.yaml:5: gpu.spread: is '" + share + "', expected a share below 0.5, such as 0.02");
  }
  EXPECT_EQ(problem_of(changed("{bandwidth: 450GB/s, latency: 3us}", "450GB/s")),
            "c.yaml:6: inside: expected bandwidth, latency\nerror: c.yaml:6: inside.bandwidth: is "
            "missing, expected a rate, such as 450GB/s or 400Gb/s\nerror: c.yaml:6: "
            "inside.latency: is missing, expected a time, such as 3.4us");
  EXPECT_THAT(problem_of("gpu: ["), ::testing::StartsWith("c.yaml:1: "));
}

TEST(Cluster, HasPresetsAndTellsWhatIsNone) {
  EXPECT_THAT(Cluster::presets(), ::testing::ElementsAre("h100", "h200", "a100-80", "a100-40"));
  for (const auto& name : Cluster::presets()) {
    EXPECT_EQ(Cluster::load(name).gpus_per_host, 8) << name;
  }
  EXPECT_EQ(testing::message_of([] { Cluster::load("h1000"); }),
            "--cluster: 'h1000' is neither a file nor a preset, did you mean 'h100'?; presets are "
            "h100, h200, a100-80, a100-40");
}

TEST(Cluster, TakesOneValueFromAFlag) {
  Cluster cluster = Cluster::load("h100");
  cluster.override_value("between", "200Gb", "--between");
  cluster.override_value("inside.latency", "0us", "--inside-latency");
  EXPECT_EQ(cluster.between.bandwidth, 25e9);
  EXPECT_EQ(cluster.inside.latency, 0);
  EXPECT_EQ(testing::message_of([&] { cluster.override_value("bus", "fast", "--bus"); }),
            "--bus: is 'fast', expected a rate, such as 450GB/s or 400Gb/s, above zero");
}

TEST(Quantity, TellsBitsFromBytes) {
  EXPECT_EQ(parse_rate("400Gb/s"), 50e9);
  EXPECT_EQ(parse_rate("400Gbit/s"), 50e9);
  EXPECT_EQ(parse_rate("3.2Tbps"), 400e9);
  EXPECT_EQ(parse_rate("400 GB/s"), 400e9);
  EXPECT_EQ(parse_rate("12B/s"), 12);
  for (const char* wrong : {"", "400", "Gb", "400 Zb", "400Gx/s", "nanGB/s", "400Gb/h"}) {
    EXPECT_EQ(parse_rate(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(parse_time("2s"), 2);
  EXPECT_EQ(parse_time("1.5 ms"), 1.5e-3);
  EXPECT_EQ(parse_time("5"), std::nullopt);
}

}  // namespace
}  // namespace fullshard::simulation
