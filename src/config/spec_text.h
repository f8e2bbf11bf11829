// A field's type and bounds in words, for messages and for the reference page.
#pragma once

#include <string>

#include "config/visitor.h"

namespace vox {

std::string type_text(const FieldRef& field, const Spec& spec);          // "whole number or auto"
std::string range_text(const Spec& spec);                                // "1 to 1024", "instance, batch"; empty: any
std::string expectation(const FieldRef& field, const Spec& spec);        // both, as a message says it
std::string choices_text(const Spec& spec, const std::string& between);  // the choices, the empty one as ""

}  // namespace vox
