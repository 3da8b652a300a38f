// SPDX-License-Identifier: Apache-2.0
// Strings as in Python: sequences of characters, with Python's definition of white space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::text::chat {

// Each character as a string; a byte that begins no UTF-8 character is a string by itself.
std::vector<std::string> characters_of(std::string_view text);
int64_t num_characters(std::string_view text);

enum class Side { left, right, both };

// Removes white space, or any of `letters`, from its ends.
std::string stripped(std::string_view text, Side side);
std::string stripped(std::string_view text, std::string_view letters, Side side);

// Splits at runs of white space; no part is empty.
std::vector<std::string> split_at_space(std::string_view text);
// Splits at most `most` times, from the left or the right; negative: everywhere. `by` is not empty.
std::vector<std::string> split_at(std::string_view text, std::string_view by, int64_t most,
                                  Side from = Side::left);
std::vector<std::string> split_lines(std::string_view text);

// Replaces every `old` by `with`; an empty `old` changes nothing.
std::string with_replaced(std::string_view text, std::string_view old, std::string_view with);

bool is_ascii(std::string_view text);
// For ASCII only.
std::string with_case(std::string text, bool upper);
std::string capitalised(std::string_view text, bool each_word);
// As Jinja's filter title: words begin after spaces, hyphens and opening brackets only.
std::string titled(std::string_view text);

}  // namespace fullshard::text::chat
