#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "io/array_file.h"
#include "io/pickle.h"
#include "io/torch_types.h"
#include "io/zip_archive.h"

namespace vox {
namespace {

fs::path scratch(const std::string& name) {
  return fs::path(testing::TempDir()) / ("voxloom_torch_" + name);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
    return error.what();
  }
  return "";
}

void overwrite(const fs::path& path, const std::string& text) {  // not synced, so that thousands take no time
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string pickle_error(const std::string& program) {
  return error_of([&] { Pickle(bytes_of(program), "file.pt", torch_pickle_rules()); });
}

// A file of torch.save whose pickle is `program`.
void write_archive(const fs::path& path, const std::string& program) {
  OutputFile file(path);
  ZipWriter archive(file);
  archive.add("archive/data.pkl", bytes_of(program));
  archive.add("archive/data/0", bytes_of("12345678"));
  archive.finish();
  file.commit();
}

TEST(TorchFile, WhatIsWrittenIsRead) {
  const std::vector<float> weights{1, 2, 3, 4, 5, 6};
  const int64_t count = 7;
  const fs::path path = scratch("round.pt");
  write_torch_file(path, {{"a.weight", "F32", {2, 3}, std::as_bytes(std::span(weights))},
                          {"count", "I64", {}, std::as_bytes(std::span(&count, 1))},
                          {"empty", "U8", {0, 2}, {}}});
  EXPECT_EQ(array_file_kind(path), ArrayFileKind::kTorch);
  const auto file = open_torch_file(path);
  ASSERT_EQ(file->arrays().size(), 3u);
  EXPECT_EQ(file->arrays()[0].name, "a.weight");
  EXPECT_EQ(file->arrays()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->arrays()[1].dtype, "I64");
  std::vector<float> read(6);
  file->read(0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, weights);
  file->read(2, {});
  fs::remove(path);
}

TEST(TorchFile, MembersAreAlignedAsTheReaderOfPyTorchMapsThem) {
  const std::vector<float> weights(3, 1.0f);
  const fs::path path = scratch("aligned.pt");
  write_torch_file(path, {{"a", "F32", {3}, std::as_bytes(std::span(weights))},
                          {"b", "F32", {3}, std::as_bytes(std::span(weights))}});
  const InputFile file(path);
  for (const ZipMember& member : read_zip_directory(file)) EXPECT_EQ(zip_range(file, member).begin % 64, 0);
  fs::remove(path);
}

TEST(TorchFile, AnyFlippedBitIsAnErrorThatNamesTheFileOrChangesNothing) {
  const std::vector<float> weights{1, 2, 3, 4, 5, 6};
  const fs::path path = scratch("flipped.pt");
  write_torch_file(path, {{"a.weight", "F32", {2, 3}, std::as_bytes(std::span(weights))},
                          {"b.bias", "F32", {6}, std::as_bytes(std::span(weights))}});
  const std::string whole = read_file(path);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    overwrite(path, damaged);
    const std::string error = error_of([&] {
      const auto file = open_torch_file(path);
      for (size_t i = 0; i < file->arrays().size(); ++i) {
        std::vector<std::byte> bytes(static_cast<size_t>(file->arrays()[i].bytes));
        file->read(i, bytes);
        if (bytes.size() != 24) continue;
        EXPECT_EQ(std::memcmp(bytes.data(), weights.data(), 24), 0) << "bit " << bit;
      }
    });
    EXPECT_TRUE(error.empty() || error.find(path.string()) != std::string::npos) << "bit " << bit << ": " << error;
  }
  fs::remove(path);
}

TEST(TorchFile, ACutFileIsAnErrorThatNamesIt) {
  const std::vector<float> weights{1, 2, 3};
  const fs::path path = scratch("cut.pt");
  write_torch_file(path, {{"a", "F32", {3}, std::as_bytes(std::span(weights))}});
  const std::string whole = read_file(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    overwrite(path, whole.substr(0, size));
    EXPECT_NE(error_of([&] { open_torch_file(path); }).find(path.string()), std::string::npos) << size;
  }
  fs::remove(path);
}

TEST(Pickle, NamesOtherThanThoseOfTensorsAreRefusedByName) {
  EXPECT_NE(pickle_error("\x80\x02"
                         "cos\nsystem\nX\x04\x00\x00\x00"
                         "true\x85R.")
                .find("os.system"),
            std::string::npos);
  EXPECT_NE(pickle_error("cbuiltins\neval\n.").find("builtins.eval"), std::string::npos);
  EXPECT_NE(pickle_error("(ios\nsystem\n.").find("os.system"), std::string::npos);
  EXPECT_NE(pickle_error("\x8c\x05posix\x8c\x06system\x93.").find("posix.system"), std::string::npos);
}

TEST(Pickle, CallsAndStatesOfKnownNamesAreBounded) {
  EXPECT_NE(pickle_error("ctorch\nFloatStorage\n)R.").find("torch.FloatStorage"), std::string::npos);
  EXPECT_NE(pickle_error("ctorch\nSize\n)R}b.").find("torch.Size"), std::string::npos);
  EXPECT_NE(pickle_error("K\x01)R.").find("no function"), std::string::npos);
  EXPECT_NE(pickle_error("ctorch\nSize\n(" + std::string(17, ')') + "tR.").find("16 arguments"), std::string::npos);
}

TEST(Pickle, StackTricksAreErrors) {
  for (const char* program : {".",
                              "0",
                              "R.",
                              "a.",
                              "(a.",
                              "](a.",
                              "s.",
                              "}s.",
                              "u.",
                              "t.",
                              "2.",
                              "b.",
                              "Q.",
                              "h\x07.",
                              "}K\x01(u.",
                              "}(K\x01u.",
                              "(K\x01"
                              "d.",
                              "e.",
                              "\x85.",
                              "q\x01.",
                              "K\x01K\x02"
                              "a."}) {
    EXPECT_FALSE(pickle_error(program).empty()) << program;
  }
  EXPECT_NE(pickle_error(std::string("X\xff\xff\xff\x7f", 5)).find("breaks off"), std::string::npos);
  EXPECT_NE(pickle_error("\x8d" + std::string(8, '\xff')).find("breaks off"), std::string::npos);
}

TEST(Pickle, DeepNestingAndSelfReferenceNeedNoStack) {
  const int depth = 1'000'000;
  const std::string nested = std::string(static_cast<size_t>(depth), ']') + std::string(depth - 1, 'a') + ".";
  EXPECT_EQ(pickle_error(nested), "");
  const fs::path path = scratch("deep.pt");
  write_archive(path, nested);
  EXPECT_NE(error_of([&] { open_torch_file(path); }).find("no dict of tensors"), std::string::npos);
  using namespace std::string_literals;
  write_archive(path, "}q\x01X\x05\x00\x00\x00modelh\x01s."s);
  EXPECT_NE(error_of([&] { open_torch_file(path); }).find("no dict of tensors"), std::string::npos);
  fs::remove(path);
}

TEST(Pickle, TooManyValuesAreRefused) {
  EXPECT_NE(pickle_error(std::string(5'000'000, 'N') + ".").find("values"), std::string::npos);
}

TEST(TorchFile, ViewsThatWouldFillTheMemoryAreRefused) {
  using namespace std::string_literals;
  // A tensor of 2^40 items, all of them the first one of its storage.
  const std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
      "0X\x03\x00\x00"
      "\x00"
      "cpuK\x02tQK\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x85K\x00\x85\x89}tR"s;
  const fs::path path = scratch("views.pt");
  write_archive(path,
                "}X\x01\x00\x00\x00"
                "a"s +
                    tensor + "s.");
  EXPECT_NE(error_of([&] { open_torch_file(path); }).find("fill the memory"), std::string::npos);
  fs::remove(path);
}

TEST(Pickle, RandomProgramsNeverDoMoreThanFail) {
  const std::string alphabet =
      "(.012GJKMNXUBC}])tldaesuqrhjcRbQio\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8e\x8f\x90\x91\x92\x93\x94\x95\x96"
      "\x01\x02\n";
  std::mt19937 random(11);
  for (int program = 0; program < 20000; ++program) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += alphabet[random() % alphabet.size()];
    pickle_error(text);
  }
}

}  // namespace
}  // namespace vox
