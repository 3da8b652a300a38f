// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/unigram.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {

Unigram::Unigram(Vocabulary vocabulary, std::vector<std::optional<double>> scores,
                 UnigramOptions options)
    : Model(std::move(vocabulary)), options_(options) {
  scores_.assign(static_cast<size_t>(this->vocabulary().size()), 0);
  this->vocabulary().each([&](std::string_view token, int32_t id) {
    const auto index = static_cast<size_t>(id);
    if (index >= scores.size() || !scores[index] || token.empty()) return;
    tokens_.insert(token, id);
    scores_[index] = *scores[index];
  });
  for (int byte = 0; byte < 256; ++byte) {
    bytes_[static_cast<size_t>(byte)] =
        this->vocabulary().find(byte_token(static_cast<uint8_t>(byte)));
  }
}

// Keeps the path to edge.end through this edge if it is better than the known one.
void Unigram::offer(std::vector<Workspace::Step>& steps, size_t begin, const Edge& edge) const {
  double score = steps[begin].score + edge.score;
  if (options_.as_sentencepiece) score = static_cast<float>(score);
  Workspace::Step& step = steps[edge.end];
  if (step.begin >= 0 && !(score > step.score)) return;
  step = {score, static_cast<int32_t>(begin), edge.id};
}

void Unigram::find_path(std::string_view word, std::vector<Workspace::Step>& steps) const {
  steps.assign(word.size() + 1, {});
  for (size_t begin = 0; begin < word.size();) {
    const size_t next = begin + utf8_length(word[begin]);
    bool known = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = tokens_.child(node, word[end++]);
      if (node == ByteTrie::kNowhere) break;
      const int32_t id = tokens_.value(node);
      if (id == ByteTrie::kNone) continue;
      offer(steps, begin, {scores_[static_cast<size_t>(id)], end, id});
      known |= end == next;
    }
    if (!known) offer(steps, begin, {options_.unknown_score, next, options_.unknown});
    begin = next;
  }
}

void Unigram::tokenize(std::string_view word, Workspace& workspace,
                       std::vector<int32_t>& ids) const {
  auto& steps = workspace.steps;
  find_path(word, steps);
  // The path is known from its end; its ends, last first, are kept in workspace.ids.
  workspace.ids.clear();
  for (auto end = static_cast<int32_t>(word.size()); end > 0;
       end = steps[static_cast<size_t>(end)].begin) {
    workspace.ids.push_back(end);
  }
  std::reverse(workspace.ids.begin(), workspace.ids.end());
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    const auto& step = steps[static_cast<size_t>(workspace.ids[i])];
    if (step.id != options_.unknown) {
      ids.push_back(step.id);
      continue;
    }
    auto end = static_cast<size_t>(workspace.ids[i]);  // consecutive unknown characters are one
    while (i + 1 < workspace.ids.size() &&
           steps[static_cast<size_t>(workspace.ids[i + 1])].id == options_.unknown) {
      end = static_cast<size_t>(workspace.ids[++i]);
    }
    const auto begin = static_cast<size_t>(step.begin);
    append_unknown(word.substr(begin, end - begin), ids);
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const int32_t whole = options_.as_sentencepiece ? Vocabulary::kNone : vocabulary().find(text);
  if (whole != Vocabulary::kNone) {
    ids.push_back(whole);
    return;
  }
  const auto byte_id = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (options_.byte_fallback &&
      std::ranges::all_of(text, [&](char byte) { return byte_id(byte) != Vocabulary::kNone; })) {
    for (const char byte : text) ids.push_back(byte_id(byte));
    return;
  }
  if (options_.unknown == Vocabulary::kNone) {
    fail_as(
        ErrorKind::input,
        "model.unk_id: the text has \"{}\", which is in no token, and there is no unknown token",
        text);
  }
  ids.push_back(options_.unknown);
}

}  // namespace fullshard::text
