// voxloom convert INPUT OUTPUT [--dtype T] [--chunk Z,Y,X] [--codec C] [--orientation keep|RAS] [--postprocess SPEC]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "config/config.h"
#include "io/format.h"
#include "io/orientation.h"
#include "io/slabs.h"
#include "post/post.h"
#include "train/signals.h"

namespace vox::cli {
namespace {

constexpr int64_t kSlabBytes = 32 << 20;  // read at once where neither format asks for more

struct Arguments {
  std::string input, output, dtype, codec, orientation = "keep", postprocess;
  std::vector<int64_t> chunk;
};

template <class To>
bool fits(double value) {
  if constexpr (std::is_integral_v<To>) {
    return value >= static_cast<double>(std::numeric_limits<To>::min()) &&
           value <= static_cast<double>(std::numeric_limits<To>::max());  // NaN compares false
  } else {
    return !std::isfinite(value) || std::abs(value) <= static_cast<double>(std::numeric_limits<To>::max());
  }
}

template <class To, class From>
void cast_voxels(const Volume& from, Volume* to, const std::string& name) {
  const double scale = from.info.scale, offset = from.info.offset;
  for (int64_t i = 0; i < from.info.voxels(); ++i) {
    double value = static_cast<double>(from.as<From>()[i]) * scale + offset;
    if constexpr (std::is_integral_v<To>) value = std::nearbyint(value);
    VOX_CHECK(fits<To>(value), name, ": the value ", shortest(value), " does not fit into ", name_of(dtype_of<To>()),
              "; nothing was written; choose a wider --dtype");
    to->data.as<To>()[i] = static_cast<To>(value);
  }
}

VolumeInfo info_after_cast(VolumeInfo info, DType dtype) {
  info.dtype = dtype;
  info.scale = 1;
  info.offset = 0;
  return info;
}

Volume cast(const Volume& volume, DType dtype, const std::string& name) {
  Volume out = allocate_volume(info_after_cast(volume.info, dtype));
  with_type(dtype, [&](auto to) {
    with_type(volume.info.dtype, [&](auto from) { cast_voxels<decltype(to), decltype(from)>(volume, &out, name); });
  });
  return out;
}

DType parse_dtype(const std::string& name) {
  const DType dtype = dtype_from_name(name);
  VOX_CHECK(dtype != DType::kBFloat16, "volumes in files are never bfloat16; use float32");
  return dtype;
}

WriteOptions write_options(const Arguments& arguments) {
  WriteOptions options;
  options.codec = arguments.codec;
  const auto& chunk = arguments.chunk;
  if (chunk.empty()) return options;
  VOX_CHECK(chunk.size() == 3 && chunk[0] > 0 && chunk[1] > 0 && chunk[2] > 0,
            "--chunk takes three positive numbers (z,y,x), such as 1,64,64");
  options.chunk = {chunk[0], chunk[1], chunk[2]};
  return options;
}

Volume turned_to_ras(const Volume& volume, const std::string& name) {
  VOX_CHECK(volume.info.affine, name,
            ": the file does not say how its axes lie in the world, so it cannot be turned to RAS; "
            "use --orientation keep");
  return apply(volume, to_ras(*volume.info.affine));
}

// Probabilities (real values) are cut by the chain's first step; of labels, everything but 0 is foreground. The result
// holds 0 and 1, or the numbers of objects.
Volume processed(const Volume& volume, const PostChain& chain, const std::string& name) {
  const double scale = volume.info.scale, offset = volume.info.offset;
  const bool scaled = scale != 1 || offset != 0;  // as probabilities in a byte each
  VOX_CHECK(volume.info.channels == 1 || chain.wants_channels(), name, " has ", volume.info.channels,
            " channels; --postprocess works on one, but for chains that begin with watershed or mutex_watershed");
  PostVolume work{.extent = volume.info.extent, .channels = volume.info.channels};
  const auto voxels = static_cast<size_t>(volume.info.voxels());
  with_type(volume.info.dtype, [&](auto type) {
    using T = decltype(type);
    const T* const values = volume.as<T>();
    if (std::is_floating_point_v<T> || scaled) {
      work.probability.resize(voxels);
      for (size_t i = 0; i < voxels; ++i)
        work.probability[i] = static_cast<float>(static_cast<double>(values[i]) * scale + offset);
    } else {
      VOX_CHECK(work.channels == 1, name,
                " holds whole numbers in several channels; objects are made from "
                "probabilities, which are real");
      work.mask.resize(voxels);
      std::set<T> classes;
      for (size_t i = 0; i < voxels; ++i) {
        work.mask[i] = values[i] != T{0};
        if (work.mask[i] && classes.size() < 2) classes.insert(values[i]);
      }
      if (classes.size() > 1)
        std::cerr << "note: " << name << " has several labels, such as " << +*classes.begin() << " and "
                  << +*classes.rbegin() << "; --postprocess takes them all for one foreground\n";
    }
  });
  chain.run(work);
  VolumeInfo info = volume.info;
  info.dtype = chain.makes_objects() ? DType::kUInt32 : DType::kUInt8;
  info.channels = 1;
  info.scale = 1;
  info.offset = 0;
  Volume out = allocate_volume(info);
  if (chain.makes_objects())
    std::copy(work.objects.begin(), work.objects.end(), out.data.as<uint32_t>());
  else
    std::copy(work.mask.begin(), work.mask.end(), out.data.as<uint8_t>());
  return out;
}

// The same list as inference.postprocess of a recipe: [{name: threshold, level: 0.4}, {name: fill_holes}].
PostChain parse_chain(const std::string& spec) {
  if (spec.empty()) return PostChain({});
  const std::string key = "inference.postprocess=";
  return PostChain(parse_config("", std::filesystem::current_path(), {key + spec}).options.inference.postprocess);
}

// Slices at once: whole rows of the file's chunks, so that none is decoded twice.
int64_t slices_at_once(const VolumeInfo& info) {
  const int64_t fitting = kSlabBytes / std::max<int64_t>(1, info.bytes() / info.extent.z);
  const int64_t row = std::max<int64_t>(1, info.chunk.z);
  return std::clamp<int64_t>(fitting / row * row, row, info.extent.z);
}

Volume read_slab(const VolumeReader& reader, int64_t z_begin, int64_t z_end, ThreadPool* pool) {
  VolumeInfo info = reader.info();
  info.extent.z = z_end - z_begin;
  Volume slab = allocate_volume(info);
  const Box3 box{{z_begin, 0, 0}, {z_end, info.extent.y, info.extent.x}};
  for (int64_t channel = 0; channel < info.channels; ++channel)
    reader.read(box, channel, slab.data.data() + channel * info.extent.voxels() * size_of(info.dtype), pool);
  return slab;
}

// `wanted`: the type to convert to; nullopt: the file's own.
VolumeInfo convert_in_slabs(const Arguments& arguments, const VolumeReader& reader, const std::optional<DType>& wanted,
                            ThreadPool* pool) {
  const SignalWatch watch;  // what was written of a large volume goes with a Ctrl-C
  Volume slab;
  SlabSource source{.info = reader.info(), .slices = slices_at_once(reader.info())};
  if (wanted) source.info = info_after_cast(source.info, *wanted);
  source.read = [&](int64_t z_begin, int64_t z_end) -> const Volume& {
    if (const int signal = watch.stop_signal(); signal != 0) throw Interrupted{signal};
    slab = {};  // gone before the next is read
    slab = read_slab(reader, z_begin, z_end, pool);
    if (wanted) slab = cast(slab, *wanted, arguments.input);
    return slab;
  };
  write_slabs(arguments.output, source, write_options(arguments), pool);
  return source.info;
}

void run(const Arguments& arguments) {
  const FormatEntry& format = format_to_write(arguments.output);
  const WriteOptions options = write_options(arguments);
  const bool ras = arguments.orientation == "RAS";
  VOX_CHECK(ras || arguments.orientation == "keep", "--orientation is keep or RAS, not \"", arguments.orientation,
            "\"");
  const DType wanted = arguments.dtype.empty() ? DType::kFloat32 : parse_dtype(arguments.dtype);
  const PostChain chain = parse_chain(arguments.postprocess);
  ThreadPool pool(available_cpus());
  const auto type_after = [&](const VolumeInfo& info) -> std::optional<DType> {
    const bool scaled = info.scale != 1 || info.offset != 0;
    const bool changes_type = !arguments.dtype.empty() && (wanted != info.dtype || scaled);
    return changes_type || (scaled && !format.keeps_scale) ? std::optional(wanted) : std::nullopt;
  };
  VolumeInfo written;
  const std::unique_ptr<VolumeReader> reader = open_volume(arguments.input);
  if (format.write_slabs != nullptr && comes_in_slabs(reader->info()) && chain.empty() && !ras) {
    written = convert_in_slabs(arguments, *reader, type_after(reader->info()), &pool);
  } else {
    Volume volume = read_volume(arguments.input, &pool);
    if (!chain.empty()) volume = processed(volume, chain, arguments.input);
    if (const std::optional<DType> type = type_after(volume.info)) volume = cast(volume, *type, arguments.input);
    if (ras) volume = turned_to_ras(volume, arguments.input);
    write_volume(arguments.output, volume, options, &pool);
    written = volume.info;
  }
  std::cout << "wrote " << arguments.output << ": " << written.extent << ' ' << name_of(written.dtype) << '\n';
}

void define(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("input", arguments->input, "volume to read: PATH or PATH:DATASET")->required();
  command.add_option("output", arguments->output, "volume to write; its suffix says the format")->required();
  command.add_option("--dtype", arguments->dtype, "type to store real values in, rounded to nearest");
  command.add_option("--chunk", arguments->chunk, "Z,Y,X in voxels of what is packed together")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--codec", arguments->codec, "none, lzw, deflate, ...: what the format knows");
  command.add_option("--orientation", arguments->orientation, "keep, or RAS: turn the axes by the file's affine");
  command.add_option("--postprocess", arguments->postprocess,
                     "steps as in inference.postprocess, such as '[{name: threshold}, {name: fill_holes}]'");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace

CommandEntry convert_command() {
  return {"convert", "Write a volume in another format, type or orientation", define};
}

}  // namespace vox::cli
