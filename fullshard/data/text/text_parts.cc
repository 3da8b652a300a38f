// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/text_parts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/text/decompressor.h"

namespace fullshard::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Memory that is mapped like a file; the kernel frees it with the mapping.
MappedFile in_memory(std::string_view text, const std::string& name) {
  const int descriptor = ::memfd_create("fullshard-text", MFD_CLOEXEC);
  if (descriptor < 0) fail("{}: cannot be unpacked ({})", name, std::strerror(errno));
  for (size_t done = 0; done < text.size();) {
    const ssize_t size = ::write(descriptor, text.data() + done, text.size() - done);
    if (size <= 0) {
      const int reason = errno;
      ::close(descriptor);
      fail("{}: cannot be unpacked ({})", name, std::strerror(reason));
    }
    done += static_cast<size_t>(size);
  }
  return MappedFile(descriptor, name, Access::sequential);
}

TableLayout layout_of(const std::string& name, FileKind kind, std::string_view text,
                      const TextPartOptions& options) {
  if (kind != FileKind::csv && kind != FileKind::table) return {};
  TableLayout layout{.separator = kind == FileKind::csv ? ',' : '\t'};
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  auto first = read_table_row(text, layout.separator);
  if (!first && kind == FileKind::csv) {
    fail_as(ErrorKind::input, "{}:1: a quote is not closed, or followed by more than a separator",
            name);
  }
  const bool has_names =
      first &&
      (kind == FileKind::csv || std::ranges::any_of(first->fields, [&](const std::string& field) {
         return !field.empty() &&
                std::ranges::find(options.column_names, field) != options.column_names.end();
       }));
  if (has_names) layout.columns = std::move(first->fields);
  return layout;
}

// The parts of one compressed file.
class UnpackedParts {
 public:
  UnpackedParts(const std::string& path, const TextPartOptions& options)
      : path_(path), kind_(kind_of(path)), options_(options), source_(open_compressed(path)) {}

  // Absent after the last one.
  std::optional<TextPart> next() {
    if (has_ended_ && text_.empty() && !is_first_) return std::nullopt;
    const size_t size = fill();
    const bool ends = has_ended_ && size == text_.size();
    TextPart part{.file = in_memory(std::string_view(text_).substr(0, size), path_),
                  .kind = kind_,
                  .layout = layout_,
                  .begins = std::exchange(is_first_, false),
                  .ends = ends,
                  .first_line = line_,
                  .first_byte = byte_,
                  .source_bytes = source_->consumed() - std::exchange(seen_, source_->consumed())};
    const std::string_view text = part.file.bytes();
    line_ += std::ranges::count(text, '\n');
    byte_ += std::ssize(text);
    text_.erase(0, size);
    return part;
  }

 private:
  // Reads on until there is a place to cut, or the end. Returns the size of the part.
  size_t fill() {
    for (auto wanted = static_cast<size_t>(options_.part_bytes);; wanted *= 2) {
      wanted = std::min(wanted, static_cast<size_t>(options_.most_bytes));
      read_up_to(wanted);
      if (is_first_) layout_ = layout_of(path_, kind_, text_, options_);
      if (has_ended_) return text_.size();
      if (const size_t cut = cut_of(text_); cut > 0) return cut;
      if (wanted == static_cast<size_t>(options_.most_bytes)) {
        fail_as(ErrorKind::input,
                "{}: from byte {} of its text on, {} bytes hold no whole line or record; "
                "unpack the file, or split it",
                path_, byte_, wanted);
      }
    }
  }

  void read_up_to(size_t size) {
    const size_t before = text_.size();
    if (before >= size) return;
    text_.resize(size);
    size_t have = before;
    while (have < size && !has_ended_) {
      const size_t got = source_->read(text_.data() + have, size - have);
      has_ended_ = got == 0;
      have += got;
    }
    text_.resize(have);
  }

  size_t cut_of(std::string_view text) const {
    if (kind_ == FileKind::text) {
      return options_.tokenizer == nullptr ? 0 : document_cut(text, *options_.tokenizer);
    }
    if (kind_ == FileKind::csv || !layout_.columns.empty()) {
      return end_of_last_row(text, kind_ == FileKind::csv ? ',' : '\t');
    }
    // An array cannot be cut.
    const size_t first = is_first_ ? text.find_first_not_of(" \t\r\n") : std::string_view::npos;
    if (kind_ == FileKind::json && first != std::string_view::npos && text[first] == '[') return 0;
    return text.rfind('\n') + 1;  // 0 if there is none
  }

  std::string path_;
  FileKind kind_;
  const TextPartOptions& options_;
  std::unique_ptr<Decompressor> source_;
  std::string text_;  // unpacked, but not yet in a part
  bool has_ended_ = false;
  bool is_first_ = true;
  TableLayout layout_;
  int64_t line_ = 1;
  int64_t byte_ = 0;
  int64_t seen_ = 0;
};

TextPart mapped_part(const std::string& path, const TextPartOptions& options) {
  MappedFile file(path, Access::sequential);
  const FileKind kind = kind_of(path);
  TableLayout layout = layout_of(path, kind, file.bytes(), options);
  const int64_t bytes = std::ssize(file.bytes());
  return {
      .file = std::move(file), .kind = kind, .layout = std::move(layout), .source_bytes = bytes};
}

}  // namespace

void for_text_parts(const std::vector<std::string>& files, const TextPartOptions& options,
                    const std::function<bool(std::span<const TextPart>)>& act) {
  std::vector<TextPart> mapped;
  const auto act_on_mapped = [&] {
    const bool goes_on = mapped.empty() || act(mapped);
    mapped.clear();
    return goes_on;
  };
  for (const std::string& path : files) {
    if (compression_of(path) == Compression::none) {
      mapped.push_back(mapped_part(path, options));
      continue;
    }
    if (!act_on_mapped()) return;
    UnpackedParts parts(path, options);
    while (auto part = parts.next()) {
      if (!act(std::span(&*part, 1))) return;
    }
  }
  act_on_mapped();
}

std::string beginning_of_text(const std::string& path, size_t bytes) {
  if (compression_of(path) == Compression::none) {
    return std::string(MappedFile(path, Access::sequential).bytes().substr(0, bytes));
  }
  std::string text(bytes, '\0');
  const auto source = open_compressed(path);
  size_t have = 0;
  for (size_t got = 1; got > 0 && have < bytes; have += got) {
    got = source->read(text.data() + have, bytes - have);
  }
  text.resize(have);
  return text;
}

std::vector<TextBlock> blocks_of_part(const TextPart& part, const Tokenizer* tokenizer,
                                      int64_t block_bytes) {
  const bool is_document = part.kind == FileKind::text;
  std::vector<TextBlock> blocks =
      is_document && tokenizer == nullptr ? std::vector{whole_document(part.file)}
      : is_document                       ? document_blocks(part.file, *tokenizer, block_bytes)
      : part.layout.columns.empty()
          ? record_blocks(part.file, part.kind, block_bytes)
          : row_blocks(part.file, part.kind, part.layout, part.begins, block_bytes);
  for (TextBlock& block : blocks) {
    block.first_line += part.first_line - 1;
    block.file_offset = part.first_byte;
    if (block.layout == nullptr) block.layout = &part.layout;
  }
  if (is_document) {
    blocks.front().begins_document = part.begins;
    blocks.back().ends_document = part.ends;
  }
  return blocks;
}

}  // namespace fullshard::data
