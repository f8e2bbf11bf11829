# Third-party libraries. Torch is made into one INTERFACE target from the folder of the Python package: its own CMake
# configuration asks for CUDA parts that are not needed to build against it.
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)

function(vox_codec name header library)
  string(TOUPPER ${name} upper)
  find_path(VOX_${upper}_INCLUDE ${header} PATH_SUFFIXES hdf5/serial)
  find_library(VOX_${upper}_LIBRARY NAMES ${library} ${ARGN})
  add_library(vox_codec_${name} INTERFACE)
  if(VOX_${upper}_INCLUDE AND VOX_${upper}_LIBRARY)
    target_include_directories(vox_codec_${name} INTERFACE ${VOX_${upper}_INCLUDE})
    target_link_libraries(vox_codec_${name} INTERFACE ${VOX_${upper}_LIBRARY})
    target_compile_definitions(vox_codec_${name} INTERFACE VOX_HAVE_${upper}=1)
  else()
    message(STATUS "${name} not found: what needs it will say so when used")
  endif()
endfunction()
vox_codec(zstd zstd.h zstd)
vox_codec(lz4 lz4.h lz4)
vox_codec(blosc blosc.h blosc)              # only for blosclz inside Zarr
vox_codec(libdeflate libdeflate.h deflate)  # more than twice the speed of zlib, which does the work where it is absent
vox_codec(hdf5 hdf5.h hdf5_serial hdf5)

if(TARGET yaml-cpp::yaml-cpp)
  set(VOX_YAML yaml-cpp::yaml-cpp)
else()
  set(VOX_YAML yaml-cpp)
endif()

if(VOX_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
endif()
if(VOX_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

if(NOT TORCH_DIR)
  foreach(python ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(COMMAND ${python} -c "import torch, os; print(os.path.dirname(torch.__file__))"
                    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed EQUAL 0)
      set(TORCH_DIR ${found} CACHE PATH "" FORCE)
      break()
    endif()
  endforeach()
endif()
if(NOT EXISTS ${TORCH_DIR}/include/torch/csrc/api/include/torch/torch.h)
  message(FATAL_ERROR "No torch package found. Run `make setup`, or pass -DTORCH_DIR=<folder of the torch package>.")
endif()
file(STRINGS ${TORCH_DIR}/version.py VOX_TORCH_VERSION REGEX "^__version__")
string(REGEX REPLACE ".*'(.*)'.*" "\\1" VOX_TORCH_VERSION "${VOX_TORCH_VERSION}")
message(STATUS "torch ${VOX_TORCH_VERSION} from ${TORCH_DIR}")

add_library(vox_torch INTERFACE)
target_include_directories(vox_torch SYSTEM INTERFACE ${TORCH_DIR}/include
                                                      ${TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(vox_torch INTERFACE VOX_TORCH_VERSION="${VOX_TORCH_VERSION}")
target_link_directories(vox_torch INTERFACE ${TORCH_DIR}/lib)
# The standard library first: some builds of libtorch export parts of std::filesystem that crash when called. By the
# name of the shared one: some compilers are set to link it statically, and with two of them in one process programs end
# in a free() of the other's locale.
target_link_libraries(vox_torch INTERFACE "-Wl,--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state"
                                          torch torch_cpu c10)
target_link_options(vox_torch INTERFACE -Wl,-rpath,${TORCH_DIR}/lib)
if(EXISTS ${TORCH_DIR}/lib/libtorch_cuda.so)
  # Nothing refers to libtorch_cuda by name: without this the linker would drop it and no GPU would be found. One item
  # each, because CMake leaves out the second of two equal ones.
  target_link_libraries(vox_torch INTERFACE "-Wl,--push-state,--no-as-needed,-ltorch_cuda,--pop-state" c10_cuda)
  # CUDA's own libraries are found through torch's run path when the program starts, and need not be here to link.
  target_link_options(vox_torch INTERFACE -Wl,--allow-shlib-undefined)
endif()
