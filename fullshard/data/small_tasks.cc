// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/small_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "fullshard/data/permutation.h"
#include "fullshard/data/random.h"

namespace fullshard::data {
namespace {

constexpr int64_t kNumbers = 100;
constexpr uint64_t kHeldOutKey = 0x68656c64206f7574;  // "held out": the same for every seed
constexpr int kFourDigits = 10'000;                   // how many there are
constexpr int64_t kLettersMost = 8;

std::string sum_line(int64_t left, int64_t right) {
  return fmt::format("{}+{}={}\n", left, right, left + right);
}

std::string random_sum(CounterRandom& random) {
  while (true) {
    const auto left = static_cast<int64_t>(random.below(kNumbers));
    const auto right = static_cast<int64_t>(random.below(kNumbers));
    if (!is_held_out_sum(left, right)) return sum_line(left, right);
  }
}

FourDigits digits_of(int number) {
  return {number / 1000, number / 100 % 10, number / 10 % 10, number % 10};
}

std::string sum_line(const FourDigits& digits) {
  return fmt::format("{}={:02}\n", fmt::join(digits, "+"),
                     std::accumulate(digits.begin(), digits.end(), 0));
}

std::string random_digit_sum(CounterRandom& random) {
  while (true) {
    const FourDigits digits = digits_of(static_cast<int>(random.below(kFourDigits)));
    if (!is_held_out_sum(digits)) return sum_line(digits);
  }
}

std::string random_letters(CounterRandom& random) {
  std::string letters(2 + random.below(kLettersMost - 1), 'a');
  for (char& letter : letters) letter = static_cast<char>('a' + random.below(26));
  return letters;
}

std::string reversal(CounterRandom& random) {
  const std::string letters = random_letters(random);
  return fmt::format("reverse {}={}\n", letters, std::string(letters.rbegin(), letters.rend()));
}

std::string counting(CounterRandom& random) {
  const uint64_t first = random.below(50);
  const uint64_t last = first + 1 + random.below(5);
  std::string line = fmt::format("count {} {}=", first, last);
  for (uint64_t number = first; number <= last; ++number) {
    line += fmt::format("{}{}", number == first ? "" : " ", number);
  }
  return line + "\n";
}

std::string copying(CounterRandom& random) {
  const std::string letters = random_letters(random);
  return fmt::format("copy {}={}\n", letters, letters);
}

std::string sorting(CounterRandom& random) {
  std::string letters = random_letters(random);
  std::string line = fmt::format("sort {}=", letters);
  std::ranges::sort(letters);
  return line + letters + "\n";
}

std::string mixed_line(CounterRandom& random) {
  switch (random.below(8)) {
    case 0:
      return reversal(random);
    case 1:
      return counting(random);
    case 2:
      return copying(random);
    case 3:
      return sorting(random);
    default:
      return random_sum(random);
  }
}

std::string line_of(TaskMix mix, CounterRandom& random) {
  switch (mix) {
    case TaskMix::sums:
      return random_sum(random);
    case TaskMix::digits:
      return random_digit_sum(random);
    default:
      return mixed_line(random);
  }
}

std::vector<std::string> held_out_sums() {
  std::vector<std::string> lines;
  for (int64_t left = 0; left < kNumbers; ++left) {
    for (int64_t right = 0; right < kNumbers; ++right) {
      if (is_held_out_sum(left, right)) lines.push_back(sum_line(left, right));
    }
  }
  return lines;
}

std::vector<std::string> held_out_digit_sums() {
  std::vector<std::string> lines;
  for (int number = 0; number < kFourDigits; ++number) {
    const FourDigits digits = digits_of(number);
    if (is_held_out_sum(digits)) lines.push_back(sum_line(digits));
  }
  return lines;
}

}  // namespace

bool is_held_out_sum(int64_t left, int64_t right) {
  const auto [less, more] = std::minmax(left, right);
  return mix_bits(kHeldOutKey, static_cast<uint64_t>(less * kNumbers + more)) % 10 == 0;
}

bool is_held_out_sum(FourDigits digits) {
  std::ranges::sort(digits);
  uint64_t number = 0;
  for (const int digit : digits) number = 10 * number + static_cast<uint64_t>(digit);
  return mix_bits(kHeldOutKey + 1, number) % 10 == 0;
}

std::string make_small_tasks(TaskMix mix, int64_t num_lines, uint64_t seed) {
  std::string text;
  for (int64_t line = 0; line < num_lines; ++line) {
    CounterRandom random(seed, static_cast<uint64_t>(mix), static_cast<uint64_t>(line));
    text += line_of(mix, random);
  }
  return text;
}

std::string make_held_out_sums(TaskMix mix, int64_t num_lines, uint64_t seed) {
  const auto lines = mix == TaskMix::digits ? held_out_digit_sums() : held_out_sums();
  const Permutation shuffled(std::ssize(lines), seed, 0);
  std::string text;
  for (int64_t i = 0; i < std::min(num_lines, std::ssize(lines)); ++i) {
    text += lines[static_cast<size_t>(shuffled(i))];
  }
  return text;
}

}  // namespace fullshard::data
