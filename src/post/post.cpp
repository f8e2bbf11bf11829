#include "post/post.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace vox {

#define VOX_POST(name) PostEntry name##_post();
#include "post/steps.list"
#undef VOX_POST

const std::vector<PostEntry>& all_post_steps() {
#define VOX_POST(name) name##_post(),
  static const std::vector<PostEntry> entries{
#include "post/steps.list"
  };
#undef VOX_POST
  return entries;
}

namespace {

const PostEntry& find_step(const std::string& name) {
  std::vector<std::string> names;
  for (const PostEntry& entry : all_post_steps()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  const std::string meant = nearest(name, names);
  throw Error(concat("postprocess: no step is called \"", name, "\"; there is ", join(names, ", "),
                     meant.empty() ? "" : concat(". Did you mean ", meant, "?")));
}

}  // namespace

PostChain::PostChain(const std::vector<PostOptions>& steps) {
  for (const PostOptions& options : steps) {
    const PostEntry& entry = find_step(options.name);
    VOX_CHECK(entry.kind != PostKind::kCut || steps_.empty(), "postprocess: ", entry.name,
              " cuts probabilities and can only be the first step");
    VOX_CHECK(!makes_objects(), "postprocess: ", entry.name,
              " cannot follow a step that makes objects, which is the last one");
    if (steps_.empty()) of_affinities_ = entry.of_affinities;
    kinds_.push_back(entry.kind);
    steps_.push_back(entry.make(options.params));
  }
}

void PostChain::check(int64_t channels, const Extent3& extent) const {
  for (const PostStep& step : steps_)
    if (step.check) step.check(channels, extent);
}

int64_t PostChain::bytes_per_voxel(int64_t channels) const {
  int64_t most = 0;
  for (const PostStep& step : steps_) most = std::max(most, step.bytes.voxel + step.bytes.channel * channels);
  return most;
}

void PostChain::run(PostVolume& volume) const {
  if (steps_.empty()) return;
  VOX_CHECK(kinds_.front() != PostKind::kCut || !volume.probability.empty(),
            "postprocess: the first step cuts probabilities, but the volume holds labels; leave it out");
  VOX_CHECK(kinds_.front() != PostKind::kMask || !volume.mask.empty(),
            "postprocess: the volume holds probabilities; begin with threshold or hysteresis");
  check(volume.probability.empty() ? 0 : volume.channels, volume.extent);
  for (const PostStep& step : steps_) step.run(volume);
}

}  // namespace vox
