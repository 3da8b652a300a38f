// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/step_share.h"

#include <fmt/format.h>

#include "fullshard/base/error.h"

namespace fullshard::tiers {

StepShare step_share(const BusSpeed& bus, double host_memory, const StepBytes& bytes) {
  check(bus.both > 0 && host_memory > 0,
        "offload: a bus of {} and a memory of {} bytes per second, expected more than nothing",
        bus.both, host_memory);
  constexpr double kNanoseconds = 1e9;
  constexpr double kWorthIt = 0.1;
  StepShare share;
  share.device_ns = kNanoseconds * 2 * bytes.over_bus_each_way / bus.both;
  share.host_ns = kNanoseconds * bytes.in_host_memory / host_memory;
  share.host = share.device_ns / (share.device_ns + share.host_ns);
  if (share.host < kWorthIt) share.host = 0;
  if (share.host > 1 - kWorthIt) share.host = 1;
  return share;
}

std::string StepShare::text() const {
  const auto times = fmt::format(
      "a step of 1e9 parameters takes {:.2f} s over the bus and {:.2f} s in host memory", device_ns,
      host_ns);
  if (host == 0) return fmt::format("{}: the device updates all of them", times);
  if (host == 1) return fmt::format("{}: the host updates all of them", times);
  return fmt::format("{}: the host updates {:.0f} % of them, the device the others", times,
                     100 * host);
}

}  // namespace fullshard::tiers
