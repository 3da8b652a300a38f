// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/text_blocks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::data {
namespace {

constexpr size_t kSurroundings = 512;  // bytes on either side of a cut that are compared
constexpr int kCutsTried = 8;

// The text without the byte order mark that some editors write.
std::string_view text_of(const MappedFile& file) {
  std::string_view text = file.bytes();
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

std::string_view content_of(const MappedFile& file) {
  const std::string_view text = text_of(file);
  if (text.empty()) fail_as(ErrorKind::input, "{}: is empty", file.name());
  return text;
}

bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

bool is_array(std::string_view text) {
  const auto first = std::ranges::find_if_not(text, is_space);
  return first != text.end() && *first == '[';
}

// Moves a position inside a character to its beginning.
size_t character_at_or_before(std::string_view text, size_t position) {
  while (position > 0 && position < text.size() && (text[position] & 0xc0) == 0x80) --position;
  return position;
}

bool keeps_tokens(std::string_view text, size_t cut, const Tokenizer& tokenizer) {
  const size_t begin = character_at_or_before(text, cut > kSurroundings ? cut - kSurroundings : 0);
  const size_t end = character_at_or_before(text, std::min(cut + kSurroundings, text.size()));
  std::vector<int32_t> parts = tokenizer.encode(text.substr(begin, cut - begin), false);
  const std::vector<int32_t> right = tokenizer.encode(text.substr(cut, end - cut), false);
  parts.insert(parts.end(), right.begin(), right.end());
  return parts == tokenizer.encode(text.substr(begin, end - begin), false);
}

// The first good cut after `from` and before `limit`.
std::optional<size_t> cut_after(std::string_view text, size_t from, size_t limit,
                                const Tokenizer& tokenizer) {
  int tried = 0;
  for (size_t at = text.find('\n', from); at != std::string_view::npos && at + 1 < limit;
       at = text.find('\n', at + 1)) {
    if (at == 0 || is_space(text[at - 1]) || is_space(text[at + 1])) continue;
    if (keeps_tokens(text, at + 1, tokenizer)) return at + 1;
    if (++tried == kCutsTried) break;
  }
  return std::nullopt;
}

}  // namespace

std::string TextBlock::place(int64_t line_or_record) const {
  return is_array ? fmt::format("{}: record {}", file->name(), line_or_record)
                  : fmt::format("{}:{}", file->name(), line_or_record);
}

void check_is_text(const TextBlock& block) {
  const size_t valid = text::valid_utf8_bytes(block.text);
  const size_t wrong = std::min(valid, block.text.find('\0'));
  if (wrong >= block.text.size()) return;
  const auto place = block.file_offset + (block.text.data() + static_cast<ptrdiff_t>(wrong) -
                                          block.file->bytes().data());
  fail_as(ErrorKind::input,
          "{}: byte {} is 0x{:02x}, which is {}; text is read as UTF-8: convert the file, or give "
          "token files",
          block.file->name(), place, static_cast<unsigned char>(block.text[wrong]),
          wrong == valid ? "not UTF-8" : "not text");
}

std::vector<TextBlock> record_blocks(const MappedFile& file, FileKind kind, int64_t block_bytes) {
  std::string_view rest = content_of(file);
  if (kind == FileKind::json && is_array(rest)) {
    return {{.file = &file, .kind = kind, .text = rest, .is_array = true}};
  }
  std::vector<TextBlock> blocks;
  for (int64_t line = 1; !rest.empty();) {
    size_t end = std::min(static_cast<size_t>(block_bytes), rest.size());
    end = rest.find('\n', end - 1);
    end = end == std::string_view::npos ? rest.size() : end + 1;
    blocks.push_back(
        {.file = &file, .kind = kind, .text = rest.substr(0, end), .first_line = line});
    line += std::ranges::count(blocks.back().text, '\n');
    rest.remove_prefix(end);
  }
  return blocks;
}

std::vector<TextBlock> row_blocks(const MappedFile& file, FileKind kind, const TableLayout& layout,
                                  bool begins, int64_t block_bytes) {
  std::string_view rest = begins ? content_of(file) : file.bytes();
  std::vector<TextBlock> blocks;
  int64_t line = 1;
  size_t size = 0;
  int64_t num_lines = 0;
  const auto end_block = [&] {
    blocks.push_back({.file = &file,
                      .kind = kind,
                      .text = rest.substr(0, size),
                      .first_line = line,
                      .layout = &layout});
    rest.remove_prefix(size);
    line += std::exchange(num_lines, 0);
    size = 0;
  };
  for (bool is_header = begins; size < rest.size(); is_header = false) {
    const auto row = read_table_row(rest.substr(size), layout.separator);
    if (!row) {
      fail_as(ErrorKind::input,
              "{}:{}: a quote is not closed, or followed by more than a separator", file.name(),
              line + num_lines);
    }
    size += row->bytes;
    num_lines += row->lines;
    if (is_header) {
      rest.remove_prefix(size);
      line += std::exchange(num_lines, 0);
      size = 0;
    } else if (size >= static_cast<size_t>(block_bytes)) {
      end_block();
    }
  }
  if (size > 0) end_block();
  return blocks;
}

TextBlock whole_document(const MappedFile& file) { return {.file = &file, .text = text_of(file)}; }

size_t document_cut(std::string_view text, const Tokenizer& tokenizer) {
  return cut_after(text, text.size() / 2, text.size(), tokenizer).value_or(0);
}

std::vector<TextBlock> document_blocks(const MappedFile& file, const Tokenizer& tokenizer,
                                       int64_t block_bytes) {
  const std::string_view text = content_of(file);
  const auto step = static_cast<size_t>(block_bytes);
  std::vector<size_t> cuts = {0};
  for (size_t from = step; from < text.size(); from += step) {
    if (const auto cut = cut_after(text, from, std::min(from + step, text.size()), tokenizer)) {
      cuts.push_back(*cut);
    }
  }
  cuts.push_back(text.size());
  std::vector<TextBlock> blocks;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    blocks.push_back({.file = &file,
                      .text = text.substr(cuts[i], cuts[i + 1] - cuts[i]),
                      .begins_document = i == 0,
                      .ends_document = i + 2 == cuts.size()});
  }
  return blocks;
}

}  // namespace fullshard::data
