// SPDX-License-Identifier: Apache-2.0
// What a pickle holds, as data. Nothing that a pickle asks to be called is ever called: such a
// request becomes an `object` that remembers what was asked.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard::formats {

enum class PickleKind {
  none,
  boolean,
  integer,
  big_integer,  // beyond 64 bits
  real,
  text,
  bytes,
  list,
  tuple,  // torch.Size too
  set,
  dict,        // collections.OrderedDict too
  global,      // a class or function by its name
  object,      // global(arguments), then state
  persistent,  // something kept outside, by an id: torch's storages
};

// Values point at one another as Python's do: they may be shared, and a list may hold itself.
struct PickleValue {
  PickleKind kind = PickleKind::none;
  int64_t integer = 0;  // boolean, integer
  double real = 0;
  // text and bytes; global: "module.name"; big_integer: two's complement, least byte first.
  std::string text;
  std::vector<const PickleValue*> items;  // list, tuple, set; what was appended to an object
  std::vector<std::pair<const PickleValue*, const PickleValue*>> pairs;  // dict; set in an object
  const PickleValue* callable = nullptr;                                 // object: mostly a global
  const PickleValue* arguments = nullptr;  // object: a tuple; persistent: the id
  const PickleValue* keywords = nullptr;   // object: a dict, or null
  const PickleValue* state = nullptr;      // object, dict, list, set: attributes, or null

  // The value of a key that is text, in a dict or an object with items. Null: not there.
  const PickleValue* find(std::string_view key) const;
  // The name of the class or function that would make an object; "" for others.
  std::string_view class_name() const;
  // "a dictionary of 3", "an object of torch.nn.modules.linear.Linear": for messages.
  std::string describe() const;
};

// Owns the values of one pickle in one list: freeing nested values does not recurse.
class Pickle {
 public:
  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace fullshard::formats
