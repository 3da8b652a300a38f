// SPDX-License-Identifier: Apache-2.0
// Fields of pickled dictionaries and objects, with messages that name them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/formats/pickle/pickle_value.h"

namespace fullshard::formats {

// "zero_pp_rank_0_mp_rank_00_optim_states.pt: optimizer_state_dict: has no 'zero_stage'". The
// messages, all of the kind input, begin with `where`.
const PickleValue& field_of(const PickleValue& value, std::string_view key,
                            const std::string& where);

// The value of an integer key; null if there is none.
const PickleValue* find_number(const PickleValue& dict, int64_t key);

// An attribute of an object, from its state, which is a dictionary; null if there is none.
const PickleValue* find_attribute(const PickleValue& object, std::string_view name);
const PickleValue& attribute_of(const PickleValue& object, std::string_view name,
                                const std::string& where);

// A whole number; a member of an enumeration counts as one.
std::optional<int64_t> number_in(const PickleValue& value);
int64_t number_of(const PickleValue& value, const std::string& where);
std::optional<double> real_in(const PickleValue& value);  // a whole number too
std::string text_of(const PickleValue& value, const std::string& where);
std::vector<int64_t> shape_of(const PickleValue& value, const std::string& where);

// Lists and tuples.
const std::vector<const PickleValue*>& items_of(const PickleValue& value, const std::string& where);

}  // namespace fullshard::formats
