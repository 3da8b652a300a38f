// SPDX-License-Identifier: Apache-2.0
// Writes pickles of protocol 2 that hold data only: what torch.load(weights_only=True) accepts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fullshard::formats {

// Values in the order in which they stand. A dictionary is begin_dict(), key, value, ...,
// end_dict(); a list and a tuple alike.
class PickleWriter {
 public:
  PickleWriter();

  void put_none();
  void put(bool value);
  void put(int64_t value);
  void put(double value);
  void put(std::string_view text);  // UTF-8
  void put(const char* text) { put(std::string_view(text)); }

  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  void put_tuple(std::span<const int64_t> numbers);

  void put_size(std::span<const int64_t> shape);  // torch.Size
  // collections.OrderedDict(), without entries.
  void put_empty_ordered_dict();

  void put_global(std::string_view module, std::string_view name);
  // Calls the global that precedes the tuple just ended, with this tuple as its arguments.
  void call();
  // Makes the tuple just ended the id of something stored outside the pickle.
  void make_persistent();

  std::string finish();  // the bytes

 private:
  template <class Number>
  void append(Number number);

  std::string bytes_;
};

}  // namespace fullshard::formats
