// SPDX-License-Identifier: Apache-2.0
// The objects of a block of JSON: one per line, or the items of one array.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/text/text_blocks.h"

namespace fullshard::data {

using Json = nlohmann::ordered_json;  // chat templates print mappings in the order of the file

// An Error of the kind `input` that names file and line.
template <class... Parts>
[[noreturn]] void fail_at(const TextBlock& block, int64_t number,
                          fmt::format_string<Parts...> format, Parts&&... parts) {
  fail_as(ErrorKind::input, "{}: {}", block.place(number),
          fmt::format(format, std::forward<Parts>(parts)...));
}

// Calls act(line, number) for each line that is not blank, without its end, until it returns false.
void for_each_line(const TextBlock& block,
                   const std::function<bool(std::string_view line, int64_t number)>& act);
// The same for records. A record that is not an object is an error that names file and line.
void for_each_object(const TextBlock& block,
                     const std::function<bool(const Json& object, int64_t number)>& act);

// The string in a field; an error that lists the fields if it is missing.
std::string string_in(const TextBlock& block, int64_t number, const Json& object,
                      const std::string& field);
std::string names_in(const Json& object);  // sorted, for messages

}  // namespace fullshard::data
