// SPDX-License-Identifier: Apache-2.0
// A tokenizer for a sentencepiece model that encodes and decodes as the sentencepiece library does.
#pragma once

#include <memory>

#include "fullshard/text/files/sentencepiece_file.h"
#include "fullshard/text/pipeline/pipeline.h"
#include "fullshard/text/pipeline/special_tokens.h"

namespace fullshard::text {

// T5's sentinels <extra_id_99> … <extra_id_0> follow the pieces where the configuration or the
// model itself (no bos) says that it is a T5.
PipelineParts sentencepiece_parts(const SentencePieceFile& file, const TokenizerConfig& config);

NormalizerPointer sentencepiece_normalizer(const SentencePieceFile& file);
std::unique_ptr<const Model> sentencepiece_bpe(const SentencePieceFile& file);
std::unique_ptr<const Model> sentencepiece_unigram(const SentencePieceFile& file);
DecoderPointer sentencepiece_decoder(const SentencePieceFile& file);

}  // namespace fullshard::text
