// SPDX-License-Identifier: Apache-2.0
// The name of a module's class as a person writes it: "Block" for ns::BlockImpl.
#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::nn {

// Drops the namespaces and the ending "Impl" of a demangled type; arguments of a template stay.
std::string plain_class_name(std::string_view demangled);
std::string plain_class_name(const std::type_info& type);

// A unit answers for itself, any other module by its type.
std::string class_name_of(const torch::nn::Module& module);

}  // namespace fullshard::nn
