// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "fullshard/base/crc32c.h"
#include "fullshard/base/error.h"
#include "fullshard/base/sha256.h"
#include "fullshard/base/text_file.h"

namespace fullshard::report {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they are in memory");

constexpr size_t kLengthBytes = 8, kSumBytes = 4;
constexpr size_t kFrameBytes = kLengthBytes + 2 * kSumBytes;
enum WireType : uint32_t { varint = 0, fixed64 = 1, with_length = 2, fixed32 = 5 };

// TensorFlow stores sums rotated and shifted, so that data with sums in it can be summed.
uint32_t masked_sum(std::string_view bytes) {
  const uint32_t sum = base::crc32c(bytes.data(), static_cast<int64_t>(bytes.size()));
  return std::rotr(sum, 15) + 0xa282ead8U;
}

template <class T>
std::string raw_bytes(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <class T>
T value_in(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

std::string varint_of(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field_key(uint32_t number, WireType type) { return varint_of(number << 3 | type); }

std::string text_field(uint32_t number, std::string_view text) {
  return field_key(number, with_length) + varint_of(text.size()) + std::string(text);
}

std::string event_message(int64_t step, const std::string& content) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return field_key(1, fixed64) + raw_bytes(std::chrono::duration<double>(now).count()) +
         field_key(2, varint) + varint_of(static_cast<uint64_t>(step)) + content;
}

std::string summary_of(std::span<const Scalar> scalars) {
  std::string values;
  for (const Scalar& scalar : scalars) {
    values += text_field(1, text_field(1, scalar.tag) + field_key(2, fixed32) +
                                raw_bytes(static_cast<float>(scalar.value)));
  }
  return text_field(5, values);
}

std::string framed(const std::string& message) {
  const std::string length = raw_bytes(static_cast<uint64_t>(message.size()));
  return length + raw_bytes(masked_sum(length)) + message + raw_bytes(masked_sum(message));
}

std::string record_of(std::span<const Scalar> scalars) {
  return framed(event_message(scalars.front().at, summary_of(scalars)));
}

// The message of the record at the front; absent if that record is cut off or damaged.
std::optional<std::string_view> message_at(std::string_view file) {
  if (file.size() < kFrameBytes) return std::nullopt;
  const auto length = value_in<uint64_t>(file);
  if (length > file.size() - kFrameBytes) return std::nullopt;
  const std::string_view message = file.substr(kLengthBytes + kSumBytes, length);
  const bool is_sound =
      value_in<uint32_t>(file.substr(kLengthBytes)) == masked_sum(file.substr(0, kLengthBytes)) &&
      value_in<uint32_t>(file.substr(kLengthBytes + kSumBytes + length)) == masked_sum(message);
  return is_sound ? std::optional(message) : std::nullopt;
}

// Takes a varint from the front; absent if there is none.
std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The step of an event of ours over steps; absent for any other.
std::optional<int64_t> step_of(std::string_view message) {
  constexpr size_t kWallTime = 9;  // the bytes of the field
  if (message.size() <= kWallTime || message.substr(kWallTime, 1) != field_key(2, varint)) {
    return std::nullopt;
  }
  message.remove_prefix(kWallTime + 1);
  const auto step = take_varint(message);
  if (!step || !message.starts_with(field_key(5, with_length))) return std::nullopt;
  const bool over_samples =
      message.find(scalars_over_samples({}, 1).front().tag) != std::string_view::npos;
  return over_samples ? std::nullopt : std::optional(static_cast<int64_t>(*step));
}

// The size up to the first event after `last_step`, or the first that is not whole.
size_t kept_event_bytes(std::string_view file, int64_t last_step) {
  size_t kept = 0;
  while (const auto message = message_at(file.substr(kept))) {
    if (step_of(*message).value_or(0) > last_step) break;
    kept += kFrameBytes + message->size();
  }
  return kept;
}

std::string file_name_for(const std::string& run_folder) {
  std::array<char, PATH_MAX> real = {};
  const bool is_there = ::realpath(run_folder.c_str(), real.data()) != nullptr;
  const base::Digest digest = base::sha256(is_there ? std::string(real.data()) : run_folder);
  return fmt::format("events.out.tfevents.fullshard.{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1],
                     digest[2], digest[3]);
}

}  // namespace

EventFile::EventFile(std::string folder, const MonitorOptions& options)
    : folder_(std::move(folder)),
      samples_per_step_(options.samples_per_step),
      file_(folder_ + "/" + file_name_for(options.run_folder)) {
  const std::string before = base::find_text_file(file_.path(), base::kAnyTextBytes).value_or("");
  const size_t kept = options.first_step > 0 ? kept_event_bytes(before, options.first_step) : 0;
  file_.cut(static_cast<int64_t>(kept));
  if (kept == 0) append(framed(event_message(0, text_field(3, "brain.Event:2"))));
}

void EventFile::add(const StepRecord& record) {
  append(record_of(scalars_over_steps(record)) +
         record_of(scalars_over_samples(record, samples_per_step_)));
}

void EventFile::append(const std::string& records) {
  if (const auto cause = file_.append(records)) {
    fail_as(ErrorKind::failed, "{}: cannot be written: {}", file_.path(), *cause);
  }
}

}  // namespace fullshard::report
