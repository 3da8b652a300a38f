// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/pipeline.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/text/models/shelf.h"
#include "fullshard/text/models/word_cache.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

// Keeps positions within 32 bits, however the steps change a text.
constexpr size_t kLongestText = size_t{128} << 20;
static_assert(kLongestText * GrowthLimit::kMostTimes <= UINT32_MAX);

constexpr size_t kMostToldBytes = 1000;  // of a message

std::optional<int32_t> id_in(const AddedTokens& added, const Model& model, std::string_view token) {
  int32_t id = added.id_of(token);
  if (id == Vocabulary::kNone) id = model.vocabulary().find(token);
  if (id == Vocabulary::kNone) return std::nullopt;
  return id;
}

// The memory of one call of encode().
struct Scratch {
  Pieces pieces;
  Workspace workspace;
  WordCache cache;
  std::vector<AddedTokens::Found> outer, inner;
  std::string part;
};

class Pipeline : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts)
      : parts_(std::move(parts)),
        vocabulary_(std::max(parts_.model->vocabulary().size(), parts_.added.size())) {
    if (parts_.model->may_cut_at_spaces()) space_marks_ = space_mark_pre_tokenizer();
  }

  std::vector<int32_t> encode(std::string_view text, bool special) const override;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const override;

  int64_t vocabulary() const override { return vocabulary_; }
  std::optional<int32_t> id_of(std::string_view token) const override {
    return id_in(parts_.added, *parts_.model, token);
  }
  std::optional<std::string> token_of(int32_t id) const override;

  std::optional<int32_t> bos() const override { return parts_.special.id(Role::bos); }
  std::optional<int32_t> eos() const override { return parts_.special.id(Role::eos); }
  std::optional<int32_t> pad() const override { return parts_.special.id(Role::pad); }
  std::optional<int32_t> mask() const override { return parts_.special.id(Role::mask); }
  std::optional<int32_t> cls() const override { return parts_.special.id(Role::cls); }
  std::optional<int32_t> sep() const override { return parts_.special.id(Role::sep); }
  bool is_special(int32_t id) const override {
    return parts_.added.is_special_id(id) || parts_.special.contains(id);
  }
  bool cuts_left() const override { return parts_.cuts_left; }

 private:
  std::vector<int32_t> ids_of(std::string_view text, bool special) const;
  std::string text_of(const std::vector<int32_t>& ids, bool skip_special) const;
  void take_apart(std::string_view text, Scratch& scratch) const;
  void append_normalized(std::string_view part, bool is_first, Scratch& scratch) const;
  void append_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  PipelineParts parts_;
  int32_t vocabulary_;
  PreTokenizerPointer space_marks_;
  mutable Shelf<Scratch> shelf_;
};

// Errors during use, as in a regular expression, name the file.
template <class Act>
auto naming_file(const std::string& file, const Act& act) {
  try {
    return act();
  } catch (const Error& error) {
    if (file.empty()) throw;
    throw Error(base::printable(fmt::format("{}: {}", file, error.what()), kMostToldBytes),
                error.kind());
  }
}

std::vector<int32_t> Pipeline::encode(std::string_view text, bool special) const {
  return naming_file(parts_.file, [&] { return ids_of(text, special); });
}

std::string Pipeline::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  return naming_file(parts_.file, [&] { return text_of(ids, skip_special); });
}

std::vector<int32_t> Pipeline::ids_of(std::string_view text, bool special) const {
  if (text.size() > kLongestText) {
    fail_as(ErrorKind::input, "a text of {} bytes is too long; split it into texts of at most {}",
            text.size(), kLongestText);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  const GrowthLimit limit(text.size());
  const auto scratch = shelf_.borrow();
  scratch->pieces.limit = limit;
  take_apart(text, *scratch);
  if (parts_.pre_tokenizer != nullptr) parts_.pre_tokenizer->apply(scratch->pieces);
  if (space_marks_ != nullptr) space_marks_->apply(scratch->pieces);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  for (const TextPiece& piece : scratch->pieces.list) {
    if (piece.token != TextPiece::kWord) {
      ids.push_back(piece.token);
    } else {
      append_word(scratch->pieces.of(piece), *scratch, ids);
    }
  }
  return parts_.post_processor.apply(std::move(ids), special, limit);
}

// Splits the original text into added tokens and the parts between them.
void Pipeline::take_apart(std::string_view text, Scratch& scratch) const {
  scratch.pieces.clear();
  scratch.outer.clear();
  parts_.added.find(text, false, scratch.outer);
  for (const auto& found : scratch.outer) {
    const auto at = static_cast<uint32_t>(scratch.pieces.text.size());
    if (found.id != Vocabulary::kNone) {
      scratch.pieces.list.push_back({at, at, found.id, false});
    } else {
      append_normalized(text.substr(found.begin, found.end - found.begin), found.begin == 0,
                        scratch);
    }
  }
}

void Pipeline::append_normalized(std::string_view part, bool is_first, Scratch& scratch) const {
  scratch.part = part;
  if (parts_.normalizer != nullptr) parts_.normalizer->apply(scratch.part, scratch.pieces.limit);
  scratch.inner.clear();
  parts_.added.find(scratch.part, true, scratch.inner);
  const auto base = static_cast<uint32_t>(scratch.pieces.text.size());
  scratch.pieces.text += scratch.part;
  scratch.pieces.limit.check_bytes(scratch.pieces.text.size());
  for (const auto& found : scratch.inner) {
    scratch.pieces.list.push_back({base + static_cast<uint32_t>(found.begin),
                                   base + static_cast<uint32_t>(found.end), found.id,
                                   is_first && found.begin == 0});
  }
}

void Pipeline::append_word(std::string_view word, Scratch& scratch,
                           std::vector<int32_t>& ids) const {
  if (!parts_.cache_words) {
    parts_.model->tokenize(word, scratch.workspace, ids);
    return;
  }
  const uint64_t hash = text_hash(word);
  const auto known = scratch.cache.find(word, hash);
  if (!known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  const size_t before = ids.size();
  parts_.model->tokenize(word, scratch.workspace, ids);
  scratch.cache.keep(word, hash, std::span(ids).subspan(before));
}

std::string Pipeline::text_of(const std::vector<int32_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    auto token = parts_.added.decoded_token_of(id);
    if (!token) token = parts_.model->vocabulary().token_of(id);
    if (!token) continue;
    if (skip_special && (parts_.added.is_special(*token) || parts_.hidden.contains(id))) continue;
    tokens.emplace_back(*token);
  }
  std::string text;
  if (parts_.decoder != nullptr) parts_.decoder->apply(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && parts_.decoder == nullptr) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::optional<std::string> Pipeline::token_of(int32_t id) const {
  auto token = parts_.added.token_of(id);
  if (!token) token = parts_.model->vocabulary().token_of(id);
  if (!token) return std::nullopt;
  return std::string(*token);
}

}  // namespace

SpecialTokens special_tokens_of(const PipelineParts& parts, const TokenizerConfig& config) {
  return {config, [&](std::string_view token) { return id_in(parts.added, *parts.model, token); }};
}

std::unique_ptr<Tokenizer> make_pipeline(PipelineParts parts) {
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace fullshard::text
