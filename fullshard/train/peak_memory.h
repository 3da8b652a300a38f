// The most memory that a rank has held so far.
#pragma once

#include <cstdint>

#include "fullshard/comm/world.h"
#include "fullshard/report/step_record.h"

namespace fullshard {

// Resident memory of this process at its peak, in bytes.
int64_t peak_resident_bytes();

// Collective. Host and device peaks of the rank that holds most, into the record of a step.
void add_peak_memory(const World& world, StepRecord& record);

}  // namespace fullshard
