// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/evaluate.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/train/batch_tensors.h"
#include "fullshard/train/evaluation_scope.h"

namespace fullshard {
namespace {

// Ranks go through their units together, so one that has run out of examples computes one without
// labels.
TokenBatch batch_of(const Dataset& data, int64_t first, int64_t count, uint64_t seed) {
  std::vector<int64_t> examples(static_cast<size_t>(std::max<int64_t>(count, 1)));
  std::iota(examples.begin(), examples.end(), count > 0 ? first : 0);
  TokenBatch batch = data.batch(examples, seed, 0);
  if (count <= 0) std::fill(batch.labels.begin(), batch.labels.end(), -100);
  return batch;
}

}  // namespace

double EvaluateResult::perplexity() const { return std::exp(loss); }

EvaluateResult evaluate(LanguageModel& model, const Dataset& data, const World& world,
                        const EvaluateOptions& options) {
  const Communicator& communicator = world.communicator();
  const EvaluationScope scope(model, options.dtype);
  const int64_t global = options.micro_batch * communicator.size();
  int64_t num_batches = (data.size() + global - 1) / global;
  if (options.max_batches > 0) num_batches = std::min(num_batches, options.max_batches);
  const auto num_classes = static_cast<int64_t>(model.class_names().size());
  double sum = 0;
  int64_t labels = 0, examples = 0;
  at::Tensor counts = at::zeros({3, num_classes}, at::kDouble);
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    const int64_t first = batch * global + communicator.rank() * options.micro_batch;
    const int64_t count = std::clamp<int64_t>(data.size() - first, 0, options.micro_batch);
    TokenBatch tokens = batch_of(data, first, count, options.seed);
    ModelInputs inputs = tensors_of(tokens, world.device());
    inputs.wants_logits = num_classes > 0;
    const ModelOutputs outputs = model.forward(inputs);
    if (num_classes > 0) counts += train::class_counts(outputs.logits, inputs.labels);
    const int64_t own = counted_labels(tokens, model);
    if (own > 0) sum += outputs.loss.item<double>() * static_cast<double>(own);
    labels += own;
    examples += count;
  }
  const auto totals = communicator.allocate(3 + counts.numel(), at::kDouble);
  totals[0] = sum;
  totals[1] = static_cast<double>(labels);
  totals[2] = static_cast<double>(examples);
  totals.narrow(0, 3, counts.numel()).copy_(counts.flatten());
  communicator.all_reduce(totals, ReduceOp::sum, "evaluation").wait();
  EvaluateResult result;
  result.labels = static_cast<int64_t>(totals[1].item<double>());
  result.examples = static_cast<int64_t>(totals[2].item<double>());
  if (result.labels == 0) {
    fail_as(ErrorKind::input, "evaluation: no example has a label");
  }
  result.loss = totals[0].item<double>() / static_cast<double>(result.labels);
  if (num_classes > 0) {
    result.classes = train::class_scores(totals.narrow(0, 3, counts.numel()).view({3, -1}));
  }
  return result;
}

}  // namespace fullshard
