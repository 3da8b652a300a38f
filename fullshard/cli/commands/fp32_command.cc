// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/fp32_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/fp32_export.h"

namespace fullshard::cli {

int run_to_fp32(const CheckpointCommandOptions& options) {
  using nlohmann::json;
  const stored::AnyCheckpoint checkpoint =
      stored::open_any(options.path, {.tag = options.tag, .with_frozen = options.with_frozen});
  const auto files = stored::export_weights(checkpoint, options.output,
                                            {.max_file_bytes = options.max_file_bytes,
                                             .safetensors = options.safetensors,
                                             .overwrites = options.overwrite})
                         .files;
  if (options.json) {
    const json value = {{"kind", checkpoint.kind}, {"path", checkpoint.path}, {"files", files}};
    // Names may come from another program: invalid UTF-8 is replaced.
    fmt::print("{}\n", value.dump(-1, ' ', false, json::error_handler_t::replace));
  } else {
    for (const auto& file : files) fmt::print("{}\n", file);
  }
  std::fflush(stdout);
  return 0;
}

}  // namespace fullshard::cli
