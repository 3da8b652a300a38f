// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/kernel_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/simulation/given_file.h"

namespace fullshard::simulation {
namespace {

constexpr std::string_view kMemoryKernel = "memory";

std::string shape_key(const std::string& name, const std::vector<int64_t>& dims,
                      std::string_view dtype) {
  return fmt::format("{} {} {}", name, fmt::join(dims, "x"), dtype);
}

TimedKernel timed_kernel(const nlohmann::json& entry) {
  TimedKernel kernel{.name = entry.at("name").get<std::string>(),
                     .seconds = entry.at("seconds").get<double>()};
  if (kernel.name == kMemoryKernel) {
    kernel.bytes = entry.at("bytes").get<int64_t>();
  } else {
    kernel.dims = entry.at("dims").get<std::vector<int64_t>>();
    kernel.dtype = entry.at("dtype").get<std::string>();
  }
  return kernel;
}

}  // namespace

KernelTable::KernelTable(std::string device, const std::vector<TimedKernel>& kernels)
    : device_(std::move(device)), kernels_(kernels) {
  for (const auto& kernel : kernels_) {
    if (kernel.name == kMemoryKernel) {
      by_bytes_[kernel.bytes] = kernel.seconds;
    } else {
      by_shape_[shape_key(kernel.name, kernel.dims, kernel.dtype)] = kernel.seconds;
    }
  }
}

KernelTable KernelTable::load(const std::string& path) {
  const auto text = read_given_file(path, "--kernels");
  if (!text) fail_as(ErrorKind::usage, "--kernels: there is no file '{}'", path);
  return parse(*text, path);
}

KernelTable KernelTable::parse(std::string_view text, const std::string& name) {
  try {
    const auto all = base::parse_json(text);
    std::vector<TimedKernel> kernels;
    for (const auto& entry : all.at("kernels")) {
      kernels.push_back(timed_kernel(entry));
      const auto& kernel = kernels.back();
      const bool is_sound =
          kernel.seconds > 0 && (kernel.name != kMemoryKernel || kernel.bytes > 0);
      if (!is_sound) {
        fail_as(ErrorKind::usage, "{}: kernel {} of {}: a time or size that is not above zero",
                name, kernels.size(), kernel.name);
      }
    }
    return {all.value("device", "a GPU"), kernels};
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::usage, "{}: {}", name, error.what());
  } catch (const nlohmann::json::exception&) {
    fail_as(ErrorKind::usage, "{}: is not a kernel table of fullshard bench kernels", name);
  }
}

KernelTable KernelTable::of_preset(std::string_view cluster) {
  return cluster == "h200" ? parse(h200_kernels(), "h200") : KernelTable();
}

std::optional<double> KernelTable::of_shape(const std::string& name,
                                            const tensor::OperatorCall& call) const {
  const auto found = by_shape_.find(shape_key(name, call.dims, c10::toString(call.dtype)));
  return found == by_shape_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> KernelTable::seconds_of(const tensor::OperatorCall& call) const {
  using Kind = tensor::OperatorKind;
  if (call.kind == Kind::product || call.kind == Kind::attention) {
    const auto timed = of_shape(call.name, call);
    const size_t dropped = call.name.find(tensor::kDropped);
    if (timed || dropped == std::string::npos) return timed;
    return of_shape(std::string(call.name).erase(dropped, tensor::kDropped.size()), call);
  }
  if (call.kind != Kind::memory || by_bytes_.empty()) return std::nullopt;
  const auto bytes = static_cast<double>(call.bytes);
  const auto above = by_bytes_.lower_bound(call.bytes);
  if (above == by_bytes_.end()) {
    const auto& [most, seconds] = *by_bytes_.rbegin();
    return seconds * bytes / static_cast<double>(most);
  }
  if (above == by_bytes_.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = (bytes - static_cast<double>(below->first)) /
                       static_cast<double>(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

std::string KernelTable::json() const {
  std::string lines;
  for (const auto& kernel : kernels_) {
    nlohmann::ordered_json entry = {{"name", kernel.name}};
    if (kernel.name == kMemoryKernel) {
      entry["bytes"] = kernel.bytes;
    } else {
      entry["dims"] = kernel.dims;
      entry["dtype"] = kernel.dtype;
    }
    entry["seconds"] = kernel.seconds;
    lines += fmt::format("{}  {}", lines.empty() ? "" : ",\n", entry.dump());
  }
  return fmt::format("{{\"device\": {}, \"kernels\": [\n{}\n]}}\n", nlohmann::json(device_).dump(),
                     lines);
}

}  // namespace fullshard::simulation
