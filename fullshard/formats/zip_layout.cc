// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/zip_layout.h"

#include <cstring>
#include <utility>

#include "fullshard/base/bytes.h"

namespace fullshard::formats {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kLocalHeaderBytes = 30;
constexpr int64_t kLimit32 = 0xFFFFFFFF;  // numbers from here on are in a zip64 field
constexpr uint16_t kVersion = 45;         // the first with zip64
constexpr uint16_t kNamesAreUtf8 = 0x0800;
constexpr uint16_t kWide = 0x0001;     // the field of 64-bit numbers
constexpr uint16_t kPadding = 0x4246;  // "FB": torch's own field for padding

class Bytes {
 public:
  template <class Number>
  Bytes& add(Number number) {
    char raw[sizeof number];
    std::memcpy(raw, &number, sizeof number);
    text_.append(raw, sizeof number);
    return *this;
  }
  Bytes& u16(int64_t number) { return add(static_cast<uint16_t>(number)); }
  Bytes& u32(int64_t number) { return add(static_cast<uint32_t>(number)); }
  Bytes& u64(int64_t number) { return add(static_cast<uint64_t>(number)); }
  Bytes& narrow(int64_t number) { return u32(number < kLimit32 ? number : kLimit32); }
  Bytes& text(const std::string& more) {
    text_ += more;
    return *this;
  }
  int64_t size() const { return static_cast<int64_t>(text_.size()); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string wide_sizes(const ZipSlot& slot) {
  if (slot.bytes < kLimit32) return "";
  return Bytes().u16(kWide).u16(16).u64(slot.bytes).u64(slot.bytes).take();
}

std::string directory_entry(const ZipSlot& slot) {
  Bytes wide;
  if (slot.bytes >= kLimit32) wide.u64(slot.bytes).u64(slot.bytes);
  if (slot.header >= kLimit32) wide.u64(slot.header);
  Bytes extra;
  if (wide.size() > 0) extra.u16(kWide).u16(wide.size()).text(wide.take());
  Bytes entry;
  entry.u32(0x02014b50).u16(kVersion).u16(kVersion).u16(kNamesAreUtf8).u16(0);
  entry.u16(0).u16(0x21);  // no time, the first day of 1980
  entry.u32(slot.checksum).narrow(slot.bytes).narrow(slot.bytes);
  entry.u16(static_cast<int64_t>(slot.name.size())).u16(extra.size()).u16(0);  // no comment
  entry.u16(0).u16(0).u32(0).narrow(slot.header);
  return entry.text(slot.name).text(extra.take()).take();
}

}  // namespace

std::string ZipSlot::header_bytes() const {
  const std::string wide = wide_sizes(*this);
  const int64_t padding = offset - header - kLocalHeaderBytes - static_cast<int64_t>(name.size()) -
                          static_cast<int64_t>(wide.size());
  Bytes local;
  local.u32(0x04034b50).u16(kVersion).u16(kNamesAreUtf8).u16(0).u16(0).u16(0x21);
  local.u32(checksum).narrow(bytes).narrow(bytes);
  local.u16(static_cast<int64_t>(name.size()));
  local.u16(static_cast<int64_t>(wide.size()) + padding).text(name).text(wide);
  local.u16(kPadding).u16(padding - 4).text(std::string(static_cast<size_t>(padding - 4), 'Z'));
  return local.take();
}

size_t ZipLayout::add(std::string name, int64_t bytes) {
  ZipSlot slot{.name = std::move(name), .bytes = bytes, .header = end_};
  const auto fixed =
      kLocalHeaderBytes + static_cast<int64_t>(slot.name.size() + wide_sizes(slot).size());
  slot.offset = round_up(end_ + fixed + 4, kAlign);  // 4: the padding field's own header
  end_ = slot.offset + bytes;
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

std::string ZipLayout::directory_bytes() const {
  Bytes all;
  for (const auto& slot : slots_) all.text(directory_entry(slot));
  const int64_t bytes = all.size();
  const auto count = static_cast<int64_t>(slots_.size());
  const bool is_wide = count >= 0xFFFF || end_ >= kLimit32 || bytes >= kLimit32;
  if (is_wide) {
    all.u32(0x06064b50).u64(44).u16(kVersion).u16(kVersion).u32(0).u32(0);
    all.u64(count).u64(count).u64(bytes).u64(end_);
    all.u32(0x07064b50).u32(0).u64(end_ + bytes).u32(1);
  }
  const int64_t narrow_count = is_wide ? 0xFFFF : count;
  all.u32(0x06054b50).u16(0).u16(0).u16(narrow_count).u16(narrow_count);
  return all.narrow(is_wide ? kLimit32 : bytes).narrow(is_wide ? kLimit32 : end_).u16(0).take();
}

}  // namespace fullshard::formats
