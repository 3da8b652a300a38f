// SPDX-License-Identifier: Apache-2.0
// What a run's flags make of its model: LoRA adapters, and a base in 8 bits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/run_options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/train/model_source.h"

namespace fullshard::train {

bool has_adapter(const RunOptions& options);

// The options that --lora-rank and its like stand for.
LoraOptions lora_options_of(const LoraRunOptions& flags);

// Before the model is sharded. Adapters by the flags, or by the configuration of --adapter; absent:
// the run has none. A classifier's head, and parameters that are drawn anew, are trained as a
// whole. With a base in int8 every frozen linear layer is one. Errors of kind usage say which flag.
std::optional<AdapterConfig> adapt_model(LanguageModel& model, const RunOptions& options,
                                         const std::vector<std::string>& drawn = {});

// "LoRA: 28 layers, 1703936 of 1237518336 parameters are trained (0.14 %)"
std::string adapter_text(const LanguageModel& model);

// Collective. The adapters' values: those of --adapter, or new ones. `drawn` are parameters that
// the base lacks: an adapter that is run with has them.
void fill_adapters(ShardedModel& model, const RunOptions& options,
                   const std::vector<std::string>& drawn);

// The source with the configuration that lies beside the adapter of --adapter, where there is one:
// that of a classifier over a base that is none.
ModelSource with_adapter_config(ModelSource source, const RunOptions& options);

// The model of a run as its plans see it: deferred, with what adapt_model() does.
std::shared_ptr<LanguageModel> make_planned_model(const ModelSource& source,
                                                  const RunOptions& options);

}  // namespace fullshard::train
