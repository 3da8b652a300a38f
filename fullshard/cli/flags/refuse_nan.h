// SPDX-License-Identifier: Apache-2.0
// Rejects NaN: it passes the parser's range checks, which compare with <.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace fullshard::cli {

// "--epochs: is nan, expected a number", for each floating-point option of the command so far.
void refuse_nan(CLI::App& command);

}  // namespace fullshard::cli
