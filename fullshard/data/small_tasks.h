// SPDX-License-Identifier: Apache-2.0
// A corpus that a small model can learn in minutes: lines with a question and its answer.
//
//   12+34=46   3+8+6+9=26   reverse abc=cba   count 3 7=3 4 5 6 7   copy abc=abc   sort dbca=abcd
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace fullshard::data {

// Sums of two numbers below 100; of four digits, which is learnt sooner; or half sums of two
// numbers and half all other tasks.
enum class TaskMix { sums, mixed, digits };

// A tenth of all sums of two numbers below 100 is held out: these appear in no corpus of any seed,
// nor do the same sums with the numbers exchanged.
bool is_held_out_sum(int64_t left, int64_t right);
// The same for four digits, in any order.
using FourDigits = std::array<int, 4>;
bool is_held_out_sum(FourDigits digits);

// `num_lines` lines; line k is a function of (mix, seed, k).
std::string make_small_tasks(TaskMix mix, int64_t num_lines, uint64_t seed);
// Up to `num_lines` different held-out sums of the mix (there are about a thousand), in an order
// that depends on the seed.
std::string make_held_out_sums(TaskMix mix, int64_t num_lines, uint64_t seed);

}  // namespace fullshard::data
