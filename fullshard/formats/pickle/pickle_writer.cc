// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/pickle/pickle_writer.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/pickle/pickle_opcodes.h"

namespace fullshard::formats {
namespace {

char code(Opcode opcode) { return static_cast<char>(opcode); }

}  // namespace

PickleWriter::PickleWriter() : bytes_{code(Opcode::protocol), 2} {}

template <class Number>
void PickleWriter::append(Number number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);
  bytes_.append(raw, sizeof number);
}

void PickleWriter::put_none() { bytes_ += code(Opcode::none); }

void PickleWriter::put(bool value) { bytes_ += code(value ? Opcode::new_true : Opcode::new_false); }

void PickleWriter::put(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    bytes_ += code(Opcode::int4);
    append(static_cast<int32_t>(value));
  } else {
    bytes_ += code(Opcode::long1);
    bytes_ += static_cast<char>(sizeof value);
    append(value);
  }
}

void PickleWriter::put(double value) {
  bytes_ += code(Opcode::real);
  append(__builtin_bswap64(std::bit_cast<uint64_t>(value)));  // the only big-endian value
}

void PickleWriter::put(std::string_view text) {
  check_input(text.size() <= std::numeric_limits<uint32_t>::max(),
              "pickle: a string of {} bytes is too long", text.size());
  bytes_ += code(Opcode::text4);
  append(static_cast<uint32_t>(text.size()));
  bytes_ += text;
}

void PickleWriter::begin_dict() {
  bytes_ += code(Opcode::empty_dict);
  bytes_ += code(Opcode::mark);
}
void PickleWriter::end_dict() { bytes_ += code(Opcode::set_items); }

void PickleWriter::begin_list() {
  bytes_ += code(Opcode::empty_list);
  bytes_ += code(Opcode::mark);
}
void PickleWriter::end_list() { bytes_ += code(Opcode::appends); }

void PickleWriter::begin_tuple() { bytes_ += code(Opcode::mark); }
void PickleWriter::end_tuple() { bytes_ += code(Opcode::tuple); }

void PickleWriter::put_tuple(std::span<const int64_t> numbers) {
  begin_tuple();
  for (const int64_t number : numbers) put(number);
  end_tuple();
}

void PickleWriter::put_size(std::span<const int64_t> shape) {
  put_global("torch", "Size");
  begin_tuple();
  put_tuple(shape);
  end_tuple();
  call();
}

void PickleWriter::put_empty_ordered_dict() {
  put_global("collections", "OrderedDict");
  bytes_ += code(Opcode::empty_tuple);
  call();
}

void PickleWriter::put_global(std::string_view module, std::string_view name) {
  bytes_ += code(Opcode::global);
  bytes_.append(module).append("\n").append(name).append("\n");
}

void PickleWriter::call() { bytes_ += code(Opcode::reduce); }
void PickleWriter::make_persistent() { bytes_ += code(Opcode::persistent); }

std::string PickleWriter::finish() {
  bytes_ += code(Opcode::stop);
  return std::exchange(bytes_, {});
}

}  // namespace fullshard::formats
