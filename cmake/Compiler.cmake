# Flags for everything, and the tools that make building quick where they are installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # assertions are ours (VOX_ASSERT) and stay

# -ffp-contract=off: host and device must compute the same bits (src/base/host_device.h).
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3> $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
set(VOX_WARNINGS -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wno-missing-field-initializers)
if(VOX_WERROR)
  list(APPEND VOX_WARNINGS -Werror)
endif()

if(VOX_CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that CUDA 13 speaks C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # torch brings a runtime of its own, which may be of another version
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")
  include_directories(SYSTEM ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
endif()

if(VOX_SANITIZE)
  add_compile_options(-fsanitize=${VOX_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${VOX_SANITIZE})
endif()

find_program(VOX_CCACHE ccache)
if(VOX_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${VOX_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${VOX_CCACHE})
endif()
find_program(VOX_MOLD mold)
if(VOX_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
