// SPDX-License-Identifier: Apache-2.0
// Transfers through io_uring: the kernel takes a list of them, and no thread waits for any.
#pragma once

#include <memory>

#include "fullshard/disk/transfers.h"

namespace fullshard::disk {

// Null: the kernel refuses, or this build is without liburing.
std::unique_ptr<Transfers> make_uring_transfers(int depth);

}  // namespace fullshard::disk
