// SPDX-License-Identifier: Apache-2.0
// A cluster that is not here: the speed of its GPUs, and of the links between them. A file, or a
// preset of known machines with eight GPUs per host.
//
//   gpu:
//     memory: 80GB
//     memory_bandwidth: 3.35TB/s     # of the data sheet
//     bf16_tflops: 640               # sustained, of matrix products
//     attention_tflops: 420          # sustained; default: 0.6 of the products'
//     fp8_tflops: 1150
//     spread: 0.02                   # standard deviation of the GPUs' speeds; default: none
//   gpus_per_host: 8
//   inside: {bandwidth: 450GB/s, latency: 3.4us}    # of one GPU, each direction; of one hop
//   between: {bandwidth: 400Gb/s, latency: 14us}    # the same, of one GPU's share of the network
//   bus: 55GB/s                                     # between a GPU and host memory, each direction
//   disk: 6GB/s                                     # of one host
//   collectives: nccl                               # or hosts; default: nccl
//
// With `nccl`, links have the bandwidths of data sheets, of which a share is reached. With `hosts`,
// for the CPU backends of this project, they have those that are reached: memory is shared inside a
// host, and between hosts every byte crosses once. The cores that compute also copy. They serve
// sockets too: between.sockets (0.3GB/s) is the rate at which a rank that does nothing else sends,
// and receives; by default sockets cost nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard {

struct ClusterGpu {
  int64_t memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes per second
  double bf16_flops = 0;        // per second, sustained in matrix products
  double attention_flops = 0;   // per second, sustained
  double fp8_flops = 0;         // per second, of products in fp8; 0: as bf16
  double spread = 0;            // standard deviation of the speeds of single GPUs, as a share
};

// The links of one GPU, in each direction.
struct ClusterLink {
  double bandwidth = 0;  // bytes per second
  double latency = 0;    // seconds of a hop
};

enum class CollectiveAlgorithm { nccl, hosts };

struct Cluster {
  std::string name{};
  ClusterGpu gpu{};
  int gpus_per_host = 8;
  ClusterLink inside{}, between{};
  double socket_bandwidth = 0;  // bytes per second; 0: sockets cost no time of cores
  double bus_bandwidth = 0;     // bytes per second
  double disk_bandwidth = 0;    // bytes per second
  CollectiveAlgorithm collectives = CollectiveAlgorithm::nccl;

  // A preset's name, or a file's. Mistakes in a file are an Error of kind usage that names
  // every line.
  static Cluster load(const std::string& file_or_preset);
  static std::vector<std::string> presets();

  // One value by a flag: "--between", "400Gb". The keys are those of a file: gpu.bf16_tflops,
  // inside, between, inside.latency, …; a link alone means its bandwidth.
  void override_value(std::string_view key, std::string_view value, const std::string& flag);
};

namespace simulation {

// `name` is for messages.
Cluster read_cluster(std::string_view text, const std::string& name);

// The text of a preset's file.
std::string_view preset_text(std::string_view name);

}  // namespace simulation
}  // namespace fullshard
