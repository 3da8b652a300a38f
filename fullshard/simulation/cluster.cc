// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"
#include "fullshard/config/document/reader.h"
#include "fullshard/simulation/given_file.h"
#include "fullshard/simulation/quantity.h"

namespace fullshard::simulation {
namespace {

using config::ConfigNode;
using config::NodeKind;

constexpr double kUsualAttentionShare = 0.6;  // of the rate of products

enum class Quantity { bytes, rate, time, tflops, share, count, algorithm };
constexpr const char* kSockets = "between.sockets";
constexpr double kHostsAlgorithm = 2;  // the other, nccl, is 1
constexpr double kLeastMemory = 1e6;   // of a GPU

struct ClusterKey {
  std::string name;  // dotted, as messages have it
  Quantity quantity;
  bool is_needed;
  std::function<void(Cluster&, double)> put;
};

const std::vector<ClusterKey>& cluster_keys() {
  static const std::vector<ClusterKey> keys = {
      {"gpu.memory", Quantity::bytes, true,
       [](Cluster& c, double v) { c.gpu.memory_bytes = static_cast<int64_t>(v); }},
      {"gpu.memory_bandwidth", Quantity::rate, true,
       [](Cluster& c, double v) { c.gpu.memory_bandwidth = v; }},
      {"gpu.bf16_tflops", Quantity::tflops, true,
       [](Cluster& c, double v) { c.gpu.bf16_flops = v; }},
      {"gpu.attention_tflops", Quantity::tflops, false,
       [](Cluster& c, double v) { c.gpu.attention_flops = v; }},
      {"gpu.fp8_tflops", Quantity::tflops, false,
       [](Cluster& c, double v) { c.gpu.fp8_flops = v; }},
      {"gpu.spread", Quantity::share, false, [](Cluster& c, double v) { c.gpu.spread = v; }},
      {"gpus_per_host", Quantity::count, true,
       [](Cluster& c, double v) { c.gpus_per_host = static_cast<int>(v); }},
      {"inside.bandwidth", Quantity::rate, true,
       [](Cluster& c, double v) { c.inside.bandwidth = v; }},
      {"inside.latency", Quantity::time, true, [](Cluster& c, double v) { c.inside.latency = v; }},
      {"between.bandwidth", Quantity::rate, true,
       [](Cluster& c, double v) { c.between.bandwidth = v; }},
      {"between.latency", Quantity::time, true,
       [](Cluster& c, double v) { c.between.latency = v; }},
      {kSockets, Quantity::rate, false, [](Cluster& c, double v) { c.socket_bandwidth = v; }},
      {"bus", Quantity::rate, true, [](Cluster& c, double v) { c.bus_bandwidth = v; }},
      {"disk", Quantity::rate, false, [](Cluster& c, double v) { c.disk_bandwidth = v; }},
      {"collectives", Quantity::algorithm, false,
       [](Cluster& c, double v) {
         c.collectives =
             v == kHostsAlgorithm ? CollectiveAlgorithm::hosts : CollectiveAlgorithm::nccl;
       }},
  };
  return keys;
}

std::string_view expectation(Quantity quantity) {
  switch (quantity) {
    case Quantity::bytes:
      return "a size with a unit, such as 80GB";
    case Quantity::rate:
      return "a rate, such as 450GB/s or 400Gb/s";
    case Quantity::time:
      return "a time, such as 3.4us";
    case Quantity::tflops:
      return "a number of TFLOP/s, such as 640";
    case Quantity::share:
      return "a share below 0.5, such as 0.02";
    case Quantity::algorithm:
      return "nccl or hosts";
    case Quantity::count:
      break;
  }
  return "a whole number from 1 to 1024";
}

std::string_view least_of(Quantity quantity) {
  if (quantity == Quantity::bytes) return ", at least 1MB";
  const bool says_all = quantity == Quantity::algorithm || quantity == Quantity::share;
  return says_all ? "" : ", above zero";
}

std::optional<double> parse_number(std::string_view text) {
  const auto node = ConfigNode::of_plain(text, false);
  if (node.kind != NodeKind::integer && node.kind != NodeKind::number) return std::nullopt;
  return node.number;
}

// Nothing if the text is not such a quantity, or is below its minimum.
std::optional<double> parse_quantity(Quantity quantity, std::string_view text) {
  std::optional<double> value;
  switch (quantity) {
    case Quantity::bytes:
      if (const auto bytes = parse_bytes(text)) value = static_cast<double>(*bytes);
      if (value && *value < kLeastMemory) return std::nullopt;  // "80" was meant in gigabytes
      break;
    case Quantity::rate:
      value = parse_rate(text);
      break;
    case Quantity::time:
      value = parse_time(text);
      break;
    case Quantity::tflops:
      value = parse_number(text);
      if (value) *value *= 1e12;
      break;
    case Quantity::share:
      value = parse_number(text);
      if (value && *value >= 0.5) return std::nullopt;
      break;
    case Quantity::algorithm:
      if (text == "nccl") value = 1;
      if (text == "hosts") value = kHostsAlgorithm;
      break;
    case Quantity::count:
      value = parse_number(text);
      if (value && (*value > 1024 || *value != static_cast<int>(*value))) return std::nullopt;
      break;
  }
  if (!value) return std::nullopt;
  const bool may_be_zero = quantity == Quantity::time || quantity == Quantity::share;
  return *value > 0 || (may_be_zero && *value == 0) ? value : std::nullopt;
}

const ClusterKey* find_key(std::string_view name) {
  const auto& keys = cluster_keys();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const ClusterKey& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

bool is_section(std::string_view name) {
  return std::any_of(cluster_keys().begin(), cluster_keys().end(), [&](const ClusterKey& key) {
    return key.name.starts_with(std::string(name) + ".");
  });
}

// The names that are allowed at that level.
std::vector<std::string> names_below(const std::string& section) {
  std::vector<std::string> names;
  for (const auto& key : cluster_keys()) {
    if (!key.name.starts_with(section)) continue;
    const std::string rest = key.name.substr(section.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// The line where the section of a key begins; 0: there is none.
int line_of_section(const ConfigNode& root, const std::string& key) {
  const std::string section = key.substr(0, key.find('.'));
  for (const auto& member : root.members) {
    if (member.name == section) return member.line;
  }
  return 0;
}

class ClusterReader {
 public:
  explicit ClusterReader(std::string file) : file_(std::move(file)) {}

  Cluster read(std::string_view text) {
    const auto root = config::read_config(text, file_, problems_);
    if (root && root->kind != NodeKind::map) {
      report(
          root->line, "",
          fmt::format("is {}, expected keys such as gpu and inside", config::name_of(root->kind)));
    } else if (root) {
      read_section(*root, "");
      check_complete(*root);
      check_sockets(*root);
    }
    problems_.sort();
    problems_.throw_if_any();
    cluster_.name = file_;
    if (cluster_.gpu.attention_flops == 0) {
      cluster_.gpu.attention_flops = kUsualAttentionShare * cluster_.gpu.bf16_flops;
    }
    return cluster_;
  }

 private:
  void report(int line, std::string key, std::string message, std::string suggestion = "") {
    problems_.errors.push_back({.file = file_,
                                .line = line,
                                .key = std::move(key),
                                .message = std::move(message),
                                .suggestion = suggestion,
                                .is_name = !suggestion.empty()});
  }

  void read_section(const ConfigNode& section, const std::string& prefix) {
    for (const auto& member : section.members) {
      const std::string name = prefix + member.name;
      if (const auto* key = find_key(name)) {
        read_value(*key, member.value);
      } else if (is_section(name) && member.value.kind == NodeKind::map) {
        read_section(member.value, name + ".");
      } else if (is_section(name)) {
        report(member.line, name,
               fmt::format("expected {}", fmt::join(names_below(name + "."), ", ")));
      } else {
        const auto known = names_below(prefix);
        const auto near = base::closest(member.name, known);
        report(member.line, name,
               near ? "no such key"
                    : fmt::format("no such key; known keys are {}", fmt::join(known, ", ")),
               near.value_or(""));
      }
    }
  }

  void read_value(const ClusterKey& key, const ConfigNode& node) {
    seen_.push_back(key.name);
    const auto value = parse_quantity(key.quantity, node.text);
    if (value) return key.put(cluster_, *value);
    report(node.line, key.name,
           fmt::format("is {}, expected {}{}",
                       node.text.empty() ? std::string(config::name_of(node.kind))
                                         : fmt::format("'{}'", node.text),
                       expectation(key.quantity), least_of(key.quantity)));
  }

  void check_complete(const ConfigNode& root) {
    for (const auto& key : cluster_keys()) {
      const bool is_there = std::find(seen_.begin(), seen_.end(), key.name) != seen_.end();
      if (!key.is_needed || is_there) continue;
      report(line_of_section(root, key.name), key.name,
             fmt::format("is missing, expected {}", expectation(key.quantity)));
    }
  }

  void check_sockets(const ConfigNode& root) {
    if (cluster_.socket_bandwidth == 0) return;
    if (cluster_.collectives == CollectiveAlgorithm::hosts) return;
    report(line_of_section(root, kSockets), kSockets,
           "has an effect only with 'collectives: hosts'; with NCCL the GPUs send by themselves");
  }

  std::string file_;
  Problems problems_;
  Cluster cluster_{};
  std::vector<std::string> seen_;
};

}  // namespace

Cluster read_cluster(std::string_view text, const std::string& name) {
  return ClusterReader(name).read(text);
}

}  // namespace fullshard::simulation

namespace fullshard {

Cluster Cluster::load(const std::string& file_or_preset) {
  if (const auto preset = simulation::preset_text(file_or_preset); !preset.empty()) {
    return simulation::read_cluster(preset, file_or_preset);
  }
  const auto text = simulation::read_given_file(file_or_preset, "--cluster");
  if (!text) {
    const auto known = presets();
    const auto near = base::closest(file_or_preset, known);
    fail_as(ErrorKind::usage, "--cluster: '{}' is neither a file nor a preset{}; presets are {}",
            file_or_preset, near ? fmt::format(", did you mean '{}'?", *near) : "",
            fmt::join(known, ", "));
  }
  return simulation::read_cluster(*text, file_or_preset);
}

void Cluster::override_value(std::string_view key, std::string_view value,
                             const std::string& flag) {
  std::string path(key);
  if (path == "inside" || path == "between") path += ".bandwidth";
  const auto* const found = simulation::find_key(path);
  check(found != nullptr, "{}: a cluster has no value {}", flag, path);
  const auto parsed = simulation::parse_quantity(found->quantity, value);
  if (!parsed) {
    fail_as(ErrorKind::usage, "{}: is '{}', expected {}{}", flag, value,
            simulation::expectation(found->quantity), simulation::least_of(found->quantity));
  }
  found->put(*this, *parsed);
}

}  // namespace fullshard
