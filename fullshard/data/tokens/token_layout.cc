// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/token_layout.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/sha256.h"
#include "fullshard/base/text_file.h"

namespace fullshard::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place");

constexpr std::string_view kMagic = "FSTOKENS";
constexpr uint32_t kVersion = 1;
constexpr int64_t kHeaderBytes = 64;
constexpr int64_t kCheckedBytes = 56;
constexpr int64_t kLlmcHeaderBytes = 256 * sizeof(int32_t);

struct LlmcKind {
  int32_t magic;
  int32_t version;
  int width;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class Number>
Number number_at(std::string_view bytes, int64_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

template <class Number>
void append_number(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

uint64_t checksum(std::string_view header) {
  const base::Digest digest = base::sha256(header.substr(0, kCheckedBytes));
  uint64_t sum;
  std::memcpy(&sum, digest.data(), sizeof sum);
  return sum;
}

const LlmcKind* llmc_kind(std::string_view bytes) {
  if (bytes.size() < sizeof(int32_t)) return nullptr;
  for (const LlmcKind& kind : kLlmcKinds) {
    if (number_at<int32_t>(bytes, 0) == kind.magic) return &kind;
  }
  return nullptr;
}

template <class... Parts>
void require(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) fail_as(ErrorKind::input, format, std::forward<Parts>(parts)...);
}

TokenLayout read_llmc(const std::string& name, std::string_view bytes, const LlmcKind& kind) {
  const auto size = static_cast<int64_t>(bytes.size());
  require(size >= kLlmcHeaderBytes, "{}: ends after {} bytes, inside llm.c's header of {}", name,
          size, kLlmcHeaderBytes);
  const auto version = number_at<int32_t>(bytes, 4);
  require(version == kind.version, "{}: llm.c file of version {}, expected {} with magic {}", name,
          version, kind.version, kind.magic);
  const int64_t named = number_at<int32_t>(bytes, 8);
  require(
      named >= 0 && size - kLlmcHeaderBytes == named * kind.width,
      "{}: its header names {} tokens of {} bytes, but {} bytes follow; the file is cut short or "
      "was not written whole",
      name, named, kind.width, size - kLlmcHeaderBytes);
  return {.format = TokenFormat::llmc,
          .width = kind.width,
          .begin = kLlmcHeaderBytes,
          .num_tokens = named};
}

TokenLayout read_fullshard(const std::string& name, std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  require(size >= kHeaderBytes, "{}: ends after {} bytes, inside its header of {}", name, size,
          kHeaderBytes);
  const auto version = number_at<uint32_t>(bytes, 8);
  require(version == kVersion, "{}: token file of version {}, this program reads version {}", name,
          version, kVersion);
  require(number_at<uint64_t>(bytes, kCheckedBytes) == checksum(bytes),
          "{}: the checksum of its header is wrong; the file is damaged, make it again with "
          "'fullshard data tokenize'",
          name);
  const TokenLayout layout{.format = TokenFormat::fullshard,
                           .width = static_cast<int>(number_at<uint32_t>(bytes, 12)),
                           .begin = number_at<int64_t>(bytes, 40),
                           .num_tokens = number_at<int64_t>(bytes, 16),
                           .num_documents = number_at<int64_t>(bytes, 24),
                           .documents_begin = number_at<int64_t>(bytes, 48),
                           .max_token = number_at<int64_t>(bytes, 32)};
  // Bounds before products: a header with a right checksum may still be hostile.
  const bool fits =
      (layout.width == 2 || layout.width == 4) && layout.begin == kHeaderBytes &&
      layout.num_tokens >= 0 && layout.num_tokens <= size / layout.width &&
      layout.num_documents >= 0 && layout.num_documents <= size / 8 &&
      layout.documents_begin == round_up(kHeaderBytes + layout.num_tokens * layout.width, 8);
  require(fits,
          "{}: its header contradicts itself; make the file again with 'fullshard data tokenize'",
          name);
  const int64_t expected = layout.documents_begin + 8 * layout.num_documents;
  require(size == expected, "{}: is {} bytes long, its header says {}; the file is cut short", name,
          size, expected);
  return layout;
}

int width_named(const std::string& name, std::string_view dtype) {
  if (dtype == "uint16") return 2;
  if (dtype == "uint32") return 4;
  fail_as(ErrorKind::input, "{}: unsupported token dtype '{}'; expected uint16 or uint32", name,
          dtype);
}

// {"dtype": "uint32"} next to the file. So small that searching for the two words is enough.
std::optional<int> companion_width(const std::string& name) {
  const auto found = base::find_text_file(name + ".json", kMiB);
  if (!found) return std::nullopt;
  const std::string& text = *found;
  const bool narrow = text.find("\"uint16\"") != std::string::npos;
  const bool wide = text.find("\"uint32\"") != std::string::npos;
  require(text.find("\"dtype\"") != std::string::npos && narrow != wide,
          "{}.json: expected {{\"dtype\": \"uint16\"}} or {{\"dtype\": \"uint32\"}}", name);
  return wide ? 4 : 2;
}

int raw_width(const std::string& name, std::string_view dtype) {
  if (!dtype.empty()) return width_named(name, dtype);
  if (const auto width = companion_width(name)) return *width;
  return name.ends_with(".u32.bin") ? 4 : 2;
}

TokenLayout read_raw(const std::string& name, std::string_view bytes, std::string_view dtype) {
  TokenLayout layout{.width = raw_width(name, dtype)};
  const auto size = static_cast<int64_t>(bytes.size());
  require(
      size % layout.width == 0,
      "{}: is {} bytes long, expected a multiple of {} ({} tokens); the file is cut short, or its "
      "tokens are of another dtype",
      name, size, layout.width, layout.dtype());
  layout.num_tokens = size / layout.width;
  return layout;
}

TokenLayout read_any(const std::string& name, std::string_view bytes, std::string_view dtype) {
  if (bytes.starts_with(kMagic)) return read_fullshard(name, bytes);
  if (const LlmcKind* kind = llmc_kind(bytes)) return read_llmc(name, bytes, *kind);
  require(!name.ends_with(".tokens") || !dtype.empty(),
          "{}: does not begin like a .tokens file; it is damaged, make it again with "
          "'fullshard data tokenize', or name raw tokens .bin",
          name);
  return read_raw(name, bytes, dtype);
}

std::string llmc_header(const TokenLayout& layout) {
  const LlmcKind& kind = kLlmcKinds[layout.width == 2 ? 0 : 1];
  check(layout.num_tokens <= INT32_MAX,
        "llm.c's format counts tokens in 32 bits, but there are {}; write several files, or "
        "another --format",
        layout.num_tokens);
  std::string header;
  append_number(header, kind.magic);
  append_number(header, kind.version);
  append_number(header, static_cast<int32_t>(layout.num_tokens));
  header.resize(kLlmcHeaderBytes);
  return header;
}

std::string fullshard_header(const TokenLayout& layout) {
  std::string header(kMagic);
  append_number(header, kVersion);
  append_number(header, static_cast<uint32_t>(layout.width));
  append_number(header, layout.num_tokens);
  append_number(header, layout.num_documents);
  append_number(header, layout.max_token);
  append_number(header, layout.begin);
  append_number(header, layout.documents_begin);
  append_number(header, checksum(header));
  return header;
}

constexpr std::array<std::pair<std::string_view, TokenFormat>, 3> kNames = {
    {{"nanogpt", TokenFormat::nanogpt},
     {"llmc", TokenFormat::llmc},
     {"fullshard", TokenFormat::fullshard}}};

}  // namespace

std::string_view name_of(TokenFormat format) {
  for (const auto& [name, value] : kNames) {
    if (value == format) return name;
  }
  return "";
}

TokenFormat token_format_named(std::string_view name) {
  for (const auto& [known, value] : kNames) {
    if (known == name) return value;
  }
  fail_as(ErrorKind::usage, "unknown token format '{}'; expected fullshard, nanogpt or llmc", name);
}

bool has_token_header(std::string_view bytes) {
  return bytes.starts_with(kMagic) || llmc_kind(bytes) != nullptr;
}

TokenLayout read_layout(const std::string& name, std::string_view bytes, std::string_view dtype) {
  const TokenLayout layout = read_any(name, bytes, dtype);
  require(dtype.empty() || width_named(name, dtype) == layout.width,
          "{}: holds {} tokens by its header, but dtype {} was asked for", name, layout.dtype(),
          dtype);
  require(layout.num_tokens > 0, "{}: holds no tokens", name);
  return layout;
}

std::string header_of(const TokenLayout& layout) {
  switch (layout.format) {
    case TokenFormat::nanogpt:
      return {};
    case TokenFormat::llmc:
      return llmc_header(layout);
    case TokenFormat::fullshard:
      return fullshard_header(layout);
  }
  return {};
}

int64_t header_size(TokenFormat format) {
  switch (format) {
    case TokenFormat::nanogpt:
      return 0;
    case TokenFormat::llmc:
      return kLlmcHeaderBytes;
    case TokenFormat::fullshard:
      return kHeaderBytes;
  }
  return 0;
}

}  // namespace fullshard::data
