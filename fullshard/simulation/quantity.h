// SPDX-License-Identifier: Apache-2.0
// Rates and times as data sheets write them.
#pragma once

#include <optional>
#include <string_view>

namespace fullshard::simulation {

// "450GB/s", "400Gb/s", "400Gb", "3.2Tbps": bits and bytes by the letter's case, decimal prefixes;
// gives bytes per second. Nothing for anything else.
std::optional<double> parse_rate(std::string_view text);
// "3.4us", "1.5 ms", "2e-6s"; seconds.
std::optional<double> parse_time(std::string_view text);

}  // namespace fullshard::simulation
