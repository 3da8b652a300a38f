// SPDX-License-Identifier: Apache-2.0
// Python's unpickler without its powers: a stack, marks in it, and a memo. Each group of opcodes is
// a source of its own: pickle_literals, pickle_containers, pickle_objects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fullshard/formats/pickle/pickle_opcodes.h"
#include "fullshard/formats/pickle/pickle_reader.h"
#include "fullshard/formats/pickle/pickle_value.h"

namespace fullshard::formats {

// Reads one pickle, once. `where` begins its messages and outlives it, as the bytes do.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& where, const PickleLimits& limits);

  Pickle run();

 private:
  using Items = std::vector<const PickleValue*>;

  void expect(bool condition, std::string_view problem) const;

  // Input.
  std::string_view take(uint64_t count);
  uint64_t unsigned_number(size_t num_bytes);
  std::string_view line();

  // Values and the stack.
  PickleValue* make(PickleKind kind);
  void push(PickleValue* value);
  void push_text(PickleKind kind, std::string_view text);
  void push_items(PickleKind kind, Items items);
  PickleValue* top() const;
  PickleValue* pop();
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Items pop_to_mark();
  // Counts text that is copied from the memo: a short pickle could ask for unlimited copies.
  void count_copy(size_t bytes);

  // Opcodes by group; false: the opcode is not in the group.
  bool do_scalar(Opcode code);
  bool do_text(Opcode code);
  bool do_container(Opcode code);
  bool do_filling(Opcode code);
  bool do_stack(Opcode code);
  bool do_memo(Opcode code);
  bool do_object(Opcode code);

  void push_integer(int64_t number);
  void push_long(std::string_view digits);
  void push_tuple(size_t count);
  void append(const Items& items);
  void set_items(const Items& items);
  void remember(uint64_t key);
  void recall(uint64_t key);
  void push_global(std::string_view module, std::string_view name);
  void call(PickleValue* callable, PickleValue* arguments, PickleValue* keywords);
  PickleValue* known_call(const PickleValue& callable, const PickleValue& arguments);
  PickleValue* encode_latin1(const PickleValue& text);
  void build();

  std::string_view bytes_;
  const std::string& where_;
  PickleLimits limits_;
  size_t position_ = 0;
  size_t begin_ = 0;  // of the current opcode
  int64_t copied_ = 0;
  Pickle pickle_;
  PickleValue* none_ = nullptr;
  PickleValue* true_ = nullptr;
  PickleValue* false_ = nullptr;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
};

}  // namespace fullshard::formats
