// SPDX-License-Identifier: Apache-2.0
// How the ranks of a world come together: in a store, before anything else connects them. Whoever
// is missing, or does not belong to the others, is named on all ranks that came.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/environment.h"
#include "fullshard/comm/store/rendezvous.h"

namespace fullshard::comm {

// The place in the job's store where the ranks of the next world of this process meet.
std::shared_ptr<Store> open_store(const Environment& environment,
                                  std::chrono::milliseconds timeout);

// Launchers tell every rank how many there are; rank 0's number counts.
void agree_on_size(Store& store, const Environment& environment, std::chrono::milliseconds timeout);

// What every rank tells, a line each. Rank 0 collects it, so that the store answers N questions and
// not N².
std::vector<std::string> exchange_texts(Store& store, const Environment& environment,
                                        const std::string& what, const std::string& own,
                                        std::chrono::milliseconds timeout);

// The store goes with rank 0: nobody fails before all have read in it why.
void part_in_failure(Store& store, const Environment& environment);

}  // namespace fullshard::comm
