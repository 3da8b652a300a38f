// SPDX-License-Identifier: Apache-2.0
// The one way to a GPU kernel of this library. A launch gives out the addresses that a kernel works
// on and the stream that it goes to, and refuses a tensor that the kernel could not reach: of
// another device, without memory, or one that only a plan knows. In a plan nothing is launched; its
// watch is told of the kernel (operator_watch.h).
//
//   launch_kernel("rotary", rows.device(), {rows, rows}, [&](const KernelLaunch& launch) {
//     rotate_rows(launch.write(rows), …, launch.stream());
//   });
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "fullshard/tensor/device_runtime.h"
#include "fullshard/tensor/device_stream.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::tensor {

// What a kernel can use: memory of its own device, or page-locked memory of the host, too.
enum class Reach { own_memory, pinned_too };

// An Error where a kernel of that name on the device cannot reach what the tensor holds. In a plan
// nothing is.
void check_reachable(std::string_view kernel, at::Device device, const at::Tensor& tensor,
                     Reach reach = Reach::own_memory);

// While it lives its device is the current one. `name` outlives it.
class KernelLaunch {
 public:
  // To the caller's current stream of the device, or to another one.
  KernelLaunch(std::string_view name, at::Device device);
  KernelLaunch(std::string_view name, const c10::Stream& stream);
  KernelLaunch(const KernelLaunch&) = delete;
  KernelLaunch& operator=(const KernelLaunch&) = delete;

  // Null where the tensor is undefined or empty.
  const void* read(const at::Tensor& tensor) const;
  void* write(const at::Tensor& tensor) const;
  // An Error where elements are not of that type.
  template <class T>
  const T* read_as(const at::Tensor& tensor) const {
    return can_reach(tensor) ? tensor.const_data_ptr<T>() : nullptr;
  }
  template <class T>
  T* write_as(const at::Tensor& tensor) const {
    return can_reach(tensor) ? tensor.mutable_data_ptr<T>() : nullptr;
  }

  DeviceStream stream() const { return DeviceStream(native_stream(stream_)); }

  // After the launch: an Error where there was none.
  void check_launched() const;

 private:
  // Whether there is anything to reach; as check_reachable.
  bool can_reach(const at::Tensor& tensor) const;

  std::string_view name_;
  c10::DeviceGuard guard_;
  c10::Stream stream_;
};

// `use` gets a KernelLaunch and launches one kernel, or a few. `touched` is what a plan counts
// instead: what is read or written, or its bytes.
template <class Use>
void launch_kernel(std::string_view name, at::Device device,
                   std::initializer_list<at::Tensor> touched, const Use& use) {
  if (is_pretended()) return note_kernel(name, touched);
  const KernelLaunch launch(name, device);
  use(launch);
  launch.check_launched();
}

template <class Use>
void launch_kernel(std::string_view name, at::Device device, int64_t touched_bytes,
                   const Use& use) {
  if (is_pretended()) return note_kernel(name, touched_bytes);
  const KernelLaunch launch(name, device);
  use(launch);
  launch.check_launched();
}

}  // namespace fullshard::tensor
