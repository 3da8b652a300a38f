// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <vector>

#include "fullshard/formats/input_error.h"

namespace fullshard::checkpoint {
namespace {

std::vector<at::Generator> generators_of(at::Device device) {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

std::vector<std::string> split_at_blanks(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ' ') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

at::Tensor parse_state(const std::string& text, int64_t expected) {
  formats::check_input(static_cast<int64_t>(text.size()) == 2 * expected,
                       "the state of the random numbers has {} digits, this libtorch's has {}",
                       text.size(), 2 * expected);
  auto state = at::empty({expected}, at::kByte);
  for (int64_t i = 0; i < expected; ++i) {
    const char* digits = text.data() + 2 * i;
    const auto read = std::from_chars(digits, digits + 2, state.data_ptr<uint8_t>()[i], 16);
    formats::check_input(read.ptr == digits + 2,
                         "the state of the random numbers is not hexadecimal at digit {}", 2 * i);
  }
  return state;
}

}  // namespace

std::string rng_state_text(at::Device device) {
  std::string text;
  for (auto& generator : generators_of(device)) {
    const auto state = state_of(generator);
    if (!text.empty()) text += ' ';
    for (int64_t i = 0; i < state.numel(); ++i) {
      text += fmt::format("{:02x}", state.const_data_ptr<uint8_t>()[i]);
    }
  }
  return text;
}

void restore_rng_state(const std::string& text, at::Device device) {
  auto generators = generators_of(device);
  const auto parts = split_at_blanks(text);
  std::vector<at::Tensor> states;
  for (size_t i = 0; i < std::min(parts.size(), generators.size()); ++i) {
    states.push_back(parse_state(parts[i], state_of(generators[i]).numel()));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const std::lock_guard lock(generators[i].mutex());
    generators[i].set_state(states[i]);
  }
}

}  // namespace fullshard::checkpoint
