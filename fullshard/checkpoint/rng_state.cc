#include "fullshard/checkpoint/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <charconv>
#include <mutex>

#include "fullshard/formats/input_error.h"

namespace fullshard {

std::string rng_state_text() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const auto state = generator.get_state();
  std::string text;
  text.reserve(static_cast<size_t>(state.numel()) * 2);
  for (int64_t i = 0; i < state.numel(); ++i) {
    text += fmt::format("{:02x}", state.const_data_ptr<uint8_t>()[i]);
  }
  return text;
}

void restore_rng_state(const std::string& text) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const int64_t expected = generator.get_state().numel();
  check_input(static_cast<int64_t>(text.size()) == 2 * expected,
              "the state of the random numbers has {} digits, this libtorch's has {}", text.size(),
              2 * expected);
  auto state = at::empty({expected}, at::kByte);
  for (int64_t i = 0; i < expected; ++i) {
    const char* digits = text.data() + 2 * i;
    const auto read = std::from_chars(digits, digits + 2, state.data_ptr<uint8_t>()[i], 16);
    check_input(read.ptr == digits + 2,
                "the state of the random numbers is not hexadecimal at digit {}", 2 * i);
  }
  generator.set_state(state);
}

}  // namespace fullshard
