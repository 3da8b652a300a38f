#include "fullshard/memory/device_dtypes.h"

namespace fullshard {

std::string why_no_bfloat16(at::Device) { return {}; }

}  // namespace fullshard
