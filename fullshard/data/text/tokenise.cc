// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/tokenise.h"

#include <sys/stat.h>

#include <algorithm>
#include <span>

#include "fullshard/base/error.h"
#include "fullshard/data/text/in_order.h"
#include "fullshard/data/text/records.h"
#include "fullshard/data/text/text_parts.h"

namespace fullshard::data {
namespace {

struct BlockTokens {
  std::vector<int32_t> tokens = {};
  std::vector<size_t> documents = {};  // where they begin among the tokens
  int64_t bytes = 0;
};

class Tokeniser {
 public:
  Tokeniser(const TokeniseOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  BlockTokens operator()(const TextBlock& block) const {
    check_is_text(block);
    BlockTokens result{.bytes = std::ssize(block.text)};
    if (block.kind == FileKind::text) {
      if (block.begins_document) result.documents.push_back(0);
      encode(block.text, block, block.first_line, result.tokens);
      if (block.ends_document) separate(result.tokens);
      return result;
    }
    for (const TextRecord& record : read_texts(block, options_.field, options_.own_documents)) {
      if (record.text.empty()) continue;
      result.documents.push_back(result.tokens.size());
      encode(record.text, block, record.number, result.tokens);
      separate(result.tokens);
    }
    return result;
  }

 private:
  void encode(std::string_view text, const TextBlock& block, int64_t number,
              std::vector<int32_t>& tokens) const {
    const std::vector<int32_t> ids = tokenizer_.encode(text, false);
    if (options_.vocabulary > 0 && !ids.empty()) {
      const int32_t most = std::ranges::max(ids);
      if (most >= options_.vocabulary) {
        fail_as(ErrorKind::input,
                "{}: the tokenizer gives token {}, beyond the model's vocabulary of {}; use the "
                "model's own tokenizer",
                block.place(number), most, options_.vocabulary);
      }
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  void separate(std::vector<int32_t>& tokens) const {
    if (options_.separator) tokens.push_back(*options_.separator);
  }

  const TokeniseOptions& options_;
  const Tokenizer& tokenizer_;
};

std::vector<TextBlock> blocks_of(std::span<const TextPart> parts, const TokeniseOptions& options,
                                 const Tokenizer& tokenizer) {
  std::vector<TextBlock> blocks;
  for (const TextPart& part : parts) {
    const bool is_pairs = part.kind == FileKind::table && part.layout.columns.empty();
    if (is_pairs) {
      fail_as(ErrorKind::input, "{}: is {} without a column '{}', expected text or JSON",
              part.file.name(), name_of(part.kind), options.field);
    }
    const auto found = blocks_of_part(part, &tokenizer, options.block_bytes);
    blocks.insert(blocks.end(), found.begin(), found.end());
  }
  return blocks;
}

int64_t file_bytes(const std::vector<std::string>& files) {
  int64_t total = 0;
  for (const std::string& path : files) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) total += status.st_size;
  }
  return total;
}

void append(const BlockTokens& block, TokenWriter& writer) {
  const std::span<const int32_t> tokens = block.tokens;
  size_t written = 0;
  for (const size_t begin : block.documents) {
    writer.append(tokens.subspan(written, begin - written));
    writer.begin_document();
    written = begin;
  }
  writer.append(tokens.subspan(written));
}

}  // namespace

void tokenise(const TokeniseOptions& options, const Tokenizer& tokenizer, TokenWriter& writer) {
  const int64_t total = file_bytes(options.files);
  const Tokeniser work(options, tokenizer);
  int64_t done = 0;
  const auto has_enough = [&] {
    return options.enough_tokens > 0 && writer.num_tokens() >= options.enough_tokens;
  };
  const TextPartOptions how{
      .tokenizer = &tokenizer, .column_names = {options.field}, .part_bytes = options.part_bytes};
  for_text_parts(options.files, how, [&](std::span<const TextPart> parts) {
    const std::vector<TextBlock> blocks = blocks_of(parts, options, tokenizer);
    int64_t text_bytes = 0, source_bytes = 0;
    for (const TextPart& part : parts) {
      text_bytes += std::ssize(part.file.bytes());
      source_bytes += part.source_bytes;
    }
    int64_t part_done = 0;
    in_order(
        std::ssize(blocks), options.num_threads > 0 ? options.num_threads : num_allowed_cores(),
        [&](int64_t i) { return work(blocks[static_cast<size_t>(i)]); },
        [&](const BlockTokens& block) {
          append(block, writer);
          part_done += block.bytes;
          // The same share of the file as of its text.
          const double share = static_cast<double>(part_done) / static_cast<double>(text_bytes);
          if (options.progress) {
            options.progress(done + static_cast<int64_t>(share * static_cast<double>(source_bytes)),
                             total);
          }
          return !has_enough();
        });
    done += source_bytes;
    return !has_enough();
  });
}

}  // namespace fullshard::data
