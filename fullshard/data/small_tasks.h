// A corpus that a small model can learn in minutes: lines with a question and its answer.
//
//   12+34=46   reverse abc=cba   count 3 7=3 4 5 6 7   copy abc=abc   sort dbca=abcd
#pragma once

#include <cstdint>
#include <string>

namespace fullshard {

enum class TaskMix { sums, mixed };

// A tenth of all sums of two numbers below 100 is held out: it appears in no corpus of any seed,
// nor does the sum with the numbers exchanged.
bool is_held_out_sum(int64_t left, int64_t right);

// `num_lines` lines; line k is a function of (mix, seed, k). In a mixture, half are sums.
std::string make_small_tasks(TaskMix mix, int64_t num_lines, uint64_t seed);
// Up to `num_lines` different held-out sums (there are about a thousand), in an order of the seed.
std::string make_held_out_sums(int64_t num_lines, uint64_t seed);

}  // namespace fullshard
