// SPDX-License-Identifier: Apache-2.0
// Opcodes of numbers, booleans and strings.
#include <bit>
#include <cstring>

#include "fullshard/formats/pickle/pickle_machine.h"

namespace fullshard::formats {

bool PickleMachine::do_scalar(Opcode code) {
  switch (code) {
    case Opcode::none:
      push(none_);
      return true;
    case Opcode::new_true:
      push(true_);
      return true;
    case Opcode::new_false:
      push(false_);
      return true;
    case Opcode::int1:
      push_integer(static_cast<int64_t>(unsigned_number(1)));
      return true;
    case Opcode::int2:
      push_integer(static_cast<int64_t>(unsigned_number(2)));
      return true;
    case Opcode::int4:
      push_integer(static_cast<int32_t>(unsigned_number(4)));
      return true;
    case Opcode::long1:
      push_long(take(unsigned_number(1)));
      return true;
    case Opcode::long4:
      push_long(take(unsigned_number(4)));
      return true;
    case Opcode::real: {
      uint64_t bits = 0;
      for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      PickleValue* value = make(PickleKind::real);
      value->real = std::bit_cast<double>(bits);
      push(value);
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::push_integer(int64_t number) {
  PickleValue* value = make(PickleKind::integer);
  value->integer = number;
  push(value);
}

// Two's complement, least byte first, any length.
void PickleMachine::push_long(std::string_view digits) {
  if (digits.size() > 8) {
    push_text(PickleKind::big_integer, digits);
    return;
  }
  const bool is_negative = !digits.empty() && (digits.back() & 0x80) != 0;
  int64_t number = is_negative ? -1 : 0;
  if (!digits.empty()) std::memcpy(&number, digits.data(), digits.size());
  push_integer(number);
}

bool PickleMachine::do_text(Opcode code) {
  const auto sized = [&](PickleKind kind, size_t length_bytes) {
    push_text(kind, take(unsigned_number(length_bytes)));
    return true;
  };
  switch (code) {
    case Opcode::text1:
      return sized(PickleKind::text, 1);
    case Opcode::text4:
      return sized(PickleKind::text, 4);
    case Opcode::text8:
      return sized(PickleKind::text, 8);
    case Opcode::bytes1:
      return sized(PickleKind::bytes, 1);
    case Opcode::bytes4:
      return sized(PickleKind::bytes, 4);
    case Opcode::bytes8:
    case Opcode::byte_array8:
      return sized(PickleKind::bytes, 8);
    // Python 2's str: torch reads it as text too.
    case Opcode::old_text1:
      return sized(PickleKind::text, 1);
    case Opcode::old_text4:
      return sized(PickleKind::text, 4);
    default:
      return false;
  }
}

}  // namespace fullshard::formats
