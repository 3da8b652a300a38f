// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/token_writer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"

namespace fullshard::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

template <class Narrow>
void append_as(std::string& buffer, std::span<const int32_t> tokens) {
  const size_t before = buffer.size();
  buffer.resize(before + tokens.size() * sizeof(Narrow));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<Narrow>(tokens[i]);
    std::copy_n(reinterpret_cast<const char*>(&token), sizeof token,
                buffer.data() + before + i * sizeof token);
  }
}

}  // namespace

int token_width_for(int64_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

TokenWriter::TokenWriter(AtomicFile file, TokenFormat format, int width)
    : file_(std::move(file)),
      layout_{.format = format, .width = width, .begin = header_size(format)} {
  buffer_.resize(static_cast<size_t>(layout_.begin));  // the header is written last
}

void TokenWriter::begin_document() {
  documents_.push_back(static_cast<uint64_t>(layout_.num_tokens));
}

void TokenWriter::append(std::span<const int32_t> tokens) {
  if (tokens.empty()) return;
  const auto [least, most] = std::ranges::minmax(tokens);
  check(least >= 0 && (layout_.width == 4 || most <= 0xffff),
        "{}: token {} does not fit into {}; the tokenizer's vocabulary is smaller than its ids",
        file_.path(), least < 0 ? least : most, layout_.dtype());
  layout_.max_token = std::max<int64_t>(layout_.max_token, most);
  layout_.num_tokens += static_cast<int64_t>(tokens.size());
  layout_.width == 2 ? append_as<uint16_t>(buffer_, tokens) : append_as<uint32_t>(buffer_, tokens);
  if (buffer_.size() >= kBufferBytes) flush();
}

void TokenWriter::flush() {
  file_.append(buffer_);
  buffer_.clear();
}

void TokenWriter::write_ends() {
  if (layout_.format == TokenFormat::fullshard) {
    layout_.documents_begin = round_up(layout_.begin + layout_.num_tokens * layout_.width, 8);
    layout_.num_documents = num_documents();
    buffer_.resize(static_cast<size_t>(layout_.documents_begin - file_.size()));
    for (const uint64_t start : documents_) {
      buffer_.append(reinterpret_cast<const char*>(&start), sizeof start);
    }
  }
  flush();
  file_.write_at(0, header_of(layout_));
}

void TokenWriter::finish() {
  write_ends();
  if (layout_.format == TokenFormat::nanogpt) write_companion();
  file_.commit();
}

// Also if one is left from an earlier file of this name: it would be believed.
void TokenWriter::write_companion() {
  const std::string companion = file_.path() + ".json";
  const bool is_told = (layout_.width == 4) == file_.path().ends_with(".u32.bin");
  if (is_told && ::access(companion.c_str(), F_OK) != 0) return;
  AtomicFile note(companion);
  note.append(fmt::format("{{\"dtype\": \"{}\"}}\n", layout_.dtype()));
  note.commit();
}

TokenFile TokenWriter::finish_in_memory() {
  write_ends();
  const std::string name = file_.path();
  return TokenFile(MappedFile(file_.take_descriptor(), name, Access::random));
}

}  // namespace fullshard::data
