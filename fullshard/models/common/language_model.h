// SPDX-License-Identifier: Apache-2.0
// What the trainer, `compare` and `eval` know of a model. A model is single-device code: it knows
// nothing of ranks and shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/nn/unit.h"

namespace fullshard::models {
struct CachedPass;
struct Unpadded;
}  // namespace fullshard::models
namespace fullshard::ops {
struct PackedDocuments;
}  // namespace fullshard::ops

namespace fullshard {

struct ModelInputs {
  at::Tensor input_ids;            // [batch, sequence], int64
  at::Tensor attention_mask{};     // [batch, sequence], non-zero: a real token; undefined: all
  at::Tensor token_type_ids{};     // BERT
  at::Tensor decoder_input_ids{};  // T5; undefined: labels moved one to the right
  at::Tensor decoder_attention_mask{};
  at::Tensor labels{};           // -100 counts nothing
  int64_t num_labels = -1;       // places that have one, after moving them; -1: not known here
  bool labels_are_next = false;  // decoders: labels[s] already is the token after input s
  bool wants_logits = false;     // else `logits` stays undefined when there are labels
  double label_smoothing = 0;
  // Decoders: several documents in a row (ops/attention/packed_documents.h), each as if it stood
  // alone. Labels are those of ModelInputs::labels_are_next, or the first token of a document would
  // be asked for.
  std::shared_ptr<const ops::PackedDocuments> documents{};
  // Encoders and encoder-decoders: which tokens are real, at the beginning of each row, when
  // attention_mask hides those that follow; of labels, those up to the last one. Known on the host,
  // so that nothing is computed for padding (models/common/unpadded.h), whose hidden states say
  // nothing then. None: everything is computed.
  std::shared_ptr<const models::Unpadded> unpadded{};
  std::shared_ptr<const models::Unpadded> unpadded_labels{};
  // Generation: the tokens follow those of the pass's cache (models/common/key_value_cache.h), and
  // `logits` are [n, vocabulary] of the tokens that it wants. No gradients, labels or masks.
  models::CachedPass* cached = nullptr;

  // What a unit's hooks look into (nn/visit_tensors.h): it has too many members to be taken apart.
  template <class F>
  void visit_tensors(F&& f) {
    visit(*this, f);
  }
  template <class F>
  void visit_tensors(F&& f) const {
    visit(*this, f);
  }

  template <class Self, class F>
  static void visit(Self& self, F& f) {
    for (auto* tensor : {&self.input_ids, &self.attention_mask, &self.token_type_ids,
                         &self.decoder_input_ids, &self.decoder_attention_mask, &self.labels}) {
      f(*tensor);
    }
  }
};

struct ModelOutputs {
  at::Tensor loss{};    // mean over the labels; undefined without labels
  at::Tensor logits{};  // without labels, or when wanted
  at::Tensor hidden{};  // what the head sees; last_hidden_state of a bare encoder
};

// The base of every ready model. Concrete models are units (FULLSHARD_UNIT), so that a call through
// this base runs their hooks too.
class LanguageModel : public Unit {
 public:
  virtual ModelOutputs forward(ModelInputs inputs) = 0;

  // Gives one parameter the values that the original's initialisation would give it (dropping what
  // it holds). `name` is its path in the module tree; random numbers come from `generator` only.
  virtual void initialise(const std::string& name, at::Tensor& parameter,
                          at::Generator generator) const = 0;
  // The name in a Hugging Face file of a parameter or buffer:
  // "model.layers.0.self_attn.q_proj.weight". `transposed`: the file holds it the other way round
  // (GPT-2's Conv1D).
  struct FileName {
    std::string name;
    bool transposed = false;
    // Other names under which files carry the same tensor: older layouts, with or without the
    // prefix of the base model ("transformer.", "bert."); tried in order when `name` is absent.
    std::vector<std::string> others = {};
  };
  virtual FileName file_name(const std::string& parameter) const = 0;
  // Names in files that are no parameters here and are passed over ("attn.bias", rotary tables).
  virtual bool is_ignored_in_files(const std::string& file_name) const = 0;

  virtual std::string architecture() const = 0;  // "LlamaForCausalLM"
  virtual std::string block_class() const = 0;   // "LlamaDecoderLayer"
  virtual std::string config_json() const = 0;   // as transformers writes it
  virtual int64_t vocabulary() const = 0;
  virtual int64_t max_positions() const = 0;  // 0: no limit
  // Whether a parameter belongs to the head of the model's task alone: a file of the bare model
  // lacks it. A head that is the embedding has none.
  virtual bool is_head(const std::string& parameter) const { return parameter == "lm_head.weight"; }
  virtual bool is_encoder_decoder() const { return false; }
  virtual bool generates() const { return false; }  // forward takes ModelInputs::cached
  virtual bool is_masked() const { return false; }  // BERT: labels are not shifted
  // Classifiers: the classes that rows are labelled with, by their numbers.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Products of one token through all layers, forward and backward, without recomputation.
  virtual double flops_per_token(int64_t sequence_length) const = 0;
};

}  // namespace fullshard
