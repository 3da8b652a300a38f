// SPDX-License-Identifier: Apache-2.0
// The parser's ranges compare with <, which every comparison with NaN passes.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace fullshard::cli {

// "--epochs: is nan, expected a number", for every floating-point option that the command has now.
void refuse_nan(CLI::App& command);

}  // namespace fullshard::cli
