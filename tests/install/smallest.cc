// SPDX-License-Identifier: Apache-2.0
// The smallest program that includes and links the installed library.
#include <fullshard/fullshard.h>

int main() { return fullshard::format_bytes(17) == "17 B" ? 0 : 1; }
