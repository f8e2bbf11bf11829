#include "infer/output.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/format.h"
#include "io/orientation.h"
#include "volume/resample.h"

namespace vox {
namespace {

bool is_turned(const VolumeInfo& file, const std::string& orientation) {
  return orientation != "keep" && file.affine && !(to_ras(*file.affine) == Reorientation{});
}

VolumeInfo in_axes_of_network(const VolumeInfo& file, const std::string& orientation) {
  return is_turned(file, orientation) ? apply(file, to_ras(*file.affine)) : file;
}

void require_writable(const std::filesystem::path& path, DType dtype) {
  const FormatEntry& format = format_to_write(path.string());
  const bool fits =
      format.types.empty() || std::find(format.types.begin(), format.types.end(), dtype) != format.types.end();
  VOX_CHECK(fits, path.string(), ": ", format.name, " cannot hold ", name_of(dtype),
            "; choose another inference.format, such as tif");
}

WriteOptions write_options(const std::filesystem::path& path) {
  WriteOptions options;
  if (format_to_write(path.string()).name == "tiff") options.codec = "lzw";
  return options;
}

}  // namespace

void use_threshold(OutputOptions& options, double threshold) {
  options.decode.threshold = threshold;
  if (options.postprocess.empty()) return;
  PostOptions& first = options.postprocess.front();
  const bool cuts = PostChain({first}).wants_probabilities();
  VOX_CHECK(!cuts || first.name == "threshold", "the threshold is set to ", threshold,
            ", but inference.postprocess begins with ", first.name,
            ", which has levels of its own; set those instead of --threshold");
  if (!cuts) return;
  first.params.kind = Tree::Kind::kMap;
  std::erase_if(first.params.members, [](const auto& member) { return member.first == "level"; });
  first.params.members.emplace_back("level", scalar_tree(shortest(threshold)));
}

CaseOutput::CaseOutput(const std::filesystem::path& path, const VolumeInfo& file, const Extent3& extent,
                       int64_t channels, const OutputOptions& options)
    : path_(path),
      file_(file),
      turned_(in_axes_of_network(file, options.orientation)),
      options_(options),
      chain_(options.postprocess),
      channels_(channels) {
  const VolumeInfo decoded = decoded_info(extent, channels, options.decode);
  const size_t of_label = options.decode.label_channels_of(channels).size();
  VOX_CHECK(of_label > 0 || !options.decode.labels() || chain_.wants_channels(),
            "no term of this network's loss was compared with the label, so there are no labels to predict; add "
            "--probabilities, or inference.postprocess with mutex_watershed");
  require_fitting(chain_, options.decode, channels, turned_.extent);
  require_writable(path, chain_.makes_objects() ? DType::kUInt32 : decoded.dtype);
  part_info_ = decoded;
  keeps_logits_ = decoded.extent != turned_.extent || (!chain_.empty() && chain_.wants_probabilities());
  if (!keeps_logits_) return;
  part_info_.dtype = DType::kFloat32;
  part_info_.channels = channels;
}

bool CaseOutput::is_plain() const {
  return !keeps_logits_ && chain_.empty() && !is_turned(file_, options_.orientation);
}

std::vector<std::byte> CaseOutput::encode(const Slab& slab) const {
  const int64_t voxels = (slab.z_end - slab.z_begin) * part_info_.extent.y * part_info_.extent.x;
  std::vector<std::byte> bytes(static_cast<size_t>(part_info_.channels * voxels * size_of(part_info_.dtype)));
  if (!keeps_logits_) {
    decode(bytes.data(), slab.logits, slab.channels, voxels, options_.decode);
    return bytes;
  }
  make_finite(reinterpret_cast<float*>(bytes.data()), slab.logits, slab.channels, voxels, options_.decode);
  return bytes;
}

int64_t CaseOutput::whole_volume_bytes() const {
  if (is_plain()) return 0;
  const int64_t voxels = file_.extent.voxels();
  int64_t bytes = part_info_.bytes();
  if (!on_file_grid()) bytes += voxels * channels_ * 4;
  if (keeps_logits_) bytes += voxels * (options_.decode.labels() ? 1 : channels_ * 4);
  if (!chain_.empty())  // probabilities, the mask, and what the steps take beside them
    bytes += voxels * ((chain_.wants_probabilities() ? 4 * channels_ : 0) + 1 + chain_.bytes_per_voxel(channels_));
  if (is_turned(file_, options_.orientation)) bytes = std::max(bytes, 2 * part_info_.bytes());
  return bytes;
}

void CaseOutput::finish(const PartFile& part, ThreadPool* pool) const {
  VolumeInfo info = part_info_;
  info.spacing = turned_.spacing;
  info.affine = turned_.affine;
  if (is_plain())
    return part.read_through(
        info, [&](const Volume& mapped) { write_volume(path_.string(), mapped, write_options(path_), pool); });
  Volume volume = part.read();
  if (!on_file_grid()) volume = resample(volume, turned_.extent, ResampleMethod::kLinear);
  if (keeps_logits_) {
    const Logits logits{channels_, turned_.extent, std::move(volume.data)};
    volume = chain_.makes_objects() ? objects_of(logits, options_.decode, chain_) : decode(logits, options_.decode);
    if (!chain_.empty() && !chain_.makes_objects())
      process_labels(volume.data.as<uint8_t>(), &logits, turned_.extent, options_.decode, chain_);
  } else if (!chain_.empty()) {
    process_labels(volume.data.as<uint8_t>(), nullptr, turned_.extent, options_.decode, chain_);
  }
  volume.info.spacing = turned_.spacing;
  volume.info.affine = turned_.affine;
  if (is_turned(file_, options_.orientation)) volume = apply(volume, inverse(to_ras(*file_.affine)));
  volume.info.spacing = file_.spacing;  // to the last digit
  volume.info.affine = file_.affine;
  write_volume(path_.string(), volume, write_options(path_), pool);
}

}  // namespace vox
