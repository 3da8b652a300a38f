// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/pickle/pickle_machine.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

PickleMachine::PickleMachine(std::string_view bytes, const std::string& where,
                             const PickleLimits& limits)
    : bytes_(bytes), where_(where), limits_(limits) {
  expect(static_cast<int64_t>(bytes.size()) <= limits.max_bytes, "it is too long");
  none_ = make(PickleKind::none);
  true_ = make(PickleKind::boolean);
  true_->integer = 1;
  false_ = make(PickleKind::boolean);
}

Pickle PickleMachine::run() {
  for (;;) {
    begin_ = position_;
    const Opcode code = static_cast<Opcode>(unsigned_number(1));
    if (code == Opcode::stop) break;
    const bool is_known = do_scalar(code) || do_text(code) || do_container(code) ||
                          do_filling(code) || do_stack(code) || do_memo(code) || do_object(code);
    expect(is_known, "its opcode is not one that torch.save writes");
  }
  pickle_.root_ = pop();
  return std::move(pickle_);
}

void PickleMachine::expect(bool condition, std::string_view problem) const {
  check_input(condition, "{}: pickle byte {}: {}", where_, begin_, problem);
}

std::string_view PickleMachine::take(uint64_t count) {
  expect(count <= bytes_.size() - position_, "it ends too early");
  const std::string_view taken = bytes_.substr(position_, count);
  position_ += count;
  return taken;
}

uint64_t PickleMachine::unsigned_number(size_t num_bytes) {
  uint64_t number = 0;
  std::memcpy(&number, take(num_bytes).data(), num_bytes);
  return number;
}

std::string_view PickleMachine::line() {
  const size_t end = bytes_.find('\n', position_);
  expect(end != std::string_view::npos, "a line has no end");
  const std::string_view taken = take(end - position_);
  ++position_;
  return taken;
}

PickleValue* PickleMachine::make(PickleKind kind) {
  expect(static_cast<int64_t>(pickle_.values_.size()) < limits_.max_values,
         "it holds too many values");
  PickleValue& value = pickle_.values_.emplace_back();
  value.kind = kind;
  return &value;
}

void PickleMachine::push(PickleValue* value) {
  expect(static_cast<int64_t>(stack_.size()) < limits_.max_stack, "its stack grows too high");
  stack_.push_back(value);
}

void PickleMachine::push_text(PickleKind kind, std::string_view text) {
  PickleValue* value = make(kind);
  value->text = text;
  push(value);
}

void PickleMachine::push_items(PickleKind kind, Items items) {
  PickleValue* value = make(kind);
  value->items = std::move(items);
  push(value);
}

PickleValue* PickleMachine::top() const {
  expect(stack_.size() > floor(), "its stack is empty");
  return stack_.back();
}

PickleValue* PickleMachine::pop() {
  PickleValue* value = top();
  stack_.pop_back();
  return value;
}

PickleMachine::Items PickleMachine::pop_to_mark() {
  expect(!marks_.empty(), "its stack has no mark");
  Items items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

void PickleMachine::count_copy(size_t bytes) {
  copied_ += static_cast<int64_t>(bytes);
  expect(copied_ <= limits_.max_bytes, "it asks for too many copies of a string");
}

bool PickleMachine::do_stack(Opcode code) {
  switch (code) {
    case Opcode::protocol: {
      const uint64_t version = unsigned_number(1);
      expect(version >= 2 && version <= 5, "its protocol is not one of 2 to 5");
      return true;
    }
    case Opcode::frame:
      take(8);
      return true;  // a hint for buffering; the frame follows in line
    case Opcode::mark:
      expect(static_cast<int64_t>(marks_.size()) < limits_.max_stack, "it has too many marks");
      marks_.push_back(stack_.size());
      return true;
    case Opcode::pop_mark:
      pop_to_mark();
      return true;
    case Opcode::duplicate:
      push(top());
      return true;
    case Opcode::pop:
      if (!marks_.empty() && stack_.size() == marks_.back()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    default:
      return false;
  }
}

bool PickleMachine::do_memo(Opcode code) {
  switch (code) {
    case Opcode::put1:
      remember(unsigned_number(1));
      return true;
    case Opcode::put4:
      remember(unsigned_number(4));
      return true;
    case Opcode::memoize:
      remember(memo_.size());
      return true;
    case Opcode::get1:
      recall(unsigned_number(1));
      return true;
    case Opcode::get4:
      recall(unsigned_number(4));
      return true;
    default:
      return false;
  }
}

// A map, not an array: a pickle may name any index, and memory is only used for stored values.
void PickleMachine::remember(uint64_t key) {
  expect(static_cast<int64_t>(memo_.size()) < limits_.max_values, "its memo holds too many values");
  memo_[key] = top();
}

void PickleMachine::recall(uint64_t key) {
  const auto found = memo_.find(key);
  expect(found != memo_.end(), "it reads a memo entry that it never stored");
  push(found->second);
}

}  // namespace fullshard::formats
