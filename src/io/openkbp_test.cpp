// OpenKBP patients against a plain reader of lines, on files drawn at random and written as the challenge does and not.
#include "io/openkbp.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "base/drawn_seed.h"
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "io/format.h"
#include "io/openkbp_csv.h"
#include "io/openkbp_plan.h"

namespace vox {
namespace {

class OpenKbp : public testing::Test {
 protected:
  OpenKbp() : folder_(fs::temp_directory_path() / concat("voxloom-openkbp-", std::random_device{}())) {
    fs::create_directories(folder_);
    std::cout << "seed " << seed_ << '\n';
  }
  ~OpenKbp() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string put(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path;
  }
  // Runs of indices that begin anywhere, and single ones.
  std::vector<int64_t> random_indices(int64_t runs) {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < runs; ++i) {
      const int64_t begin = random_.below(random_.chance(0.2) ? 2000 : kOpenKbpVoxels - 100);
      const int64_t length = 1 + random_.below(100);
      for (int64_t k = 0; k < length; ++k) indices.push_back(begin + k);
    }
    return indices;
  }

  const uint64_t seed_ = drawn_seed();
  Random random_{seed_, 0, 0};
  const fs::path folder_;
};

TEST_F(OpenKbp, ValuesEqualThoseOfAPlainReader) {
  const char* kFloats[] = {"0.0", "7.675", "79.997", "12.5", "100.0", "3", "0.001", "1e-3", "66.12345678", "5.0\r"};
  const char* kInts[] = {"18.0", "1.0", "4095.0", "32743.0", "0.0", "1013.0", "7", "250.00", "-3.0", "12.0\r"};
  std::string floats = ",data\n", ints = ",data\n", mask = ",data\n";
  std::vector<float> float_truth(kOpenKbpVoxels), floats_read(kOpenKbpVoxels, 7);
  std::vector<int16_t> int_truth(kOpenKbpVoxels), ints_read(kOpenKbpVoxels, 7);
  std::vector<uint16_t> mask_truth(kOpenKbpVoxels), mask_read(kOpenKbpVoxels);
  for (const int64_t index : random_indices(600)) {
    const int64_t kinds = random_.chance(0.9) ? 5 : 10;  // mostly as the challenge writes them: four at once
    const std::string value = kFloats[random_.below(kinds)], whole_value = kInts[random_.below(kinds)];
    floats += std::to_string(index) + "," + value + "\n";
    ints += std::to_string(index) + "," + whole_value + "\n";
    mask += std::to_string(index) + (random_.chance(0.01) ? ",\r\n" : ",\n");
    const size_t at = static_cast<size_t>(index);
    float_truth[at] = static_cast<float>(std::stod(value));
    int_truth[at] = static_cast<int16_t>(std::stod(whole_value));
    mask_truth[at] = 4;
  }
  read_sparse_float(put("f.csv", floats), floats_read.data(), Others::kBecomeZero);
  read_sparse_int16(put("i.csv", ints), ints_read.data(), Others::kBecomeZero);
  read_sparse_mask(put("m.csv", mask), mask_read.data(), 4, Others::kStay);
  EXPECT_TRUE(floats_read == float_truth);
  EXPECT_TRUE(ints_read == int_truth);
  EXPECT_TRUE(mask_read == mask_truth);
}

TEST_F(OpenKbp, WhatIsNoSuchFileIsRefusedByASentence) {
  std::vector<int16_t> voxels(kOpenKbpVoxels);
  const std::pair<const char*, const char*> kBad[] = {{"", ",data"},
                                                      {"index,data\n1,2\n", ",data"},
                                                      {",data\n5,1.0", "does not end"},
                                                      {",data\n5;1.0\n", "5;1.0"},
                                                      {",data\nx,1.0\n", "index"},
                                                      {",data\n2097152,1.0\n", "below 2097152"},
                                                      {",data\n5,1.5\n", "1.5"},
                                                      {",data\n5,70000.0\n", "70000"},
                                                      {",data\n5,\n", "whole number"},
                                                      {",data\n5,1.0,3\n", ",3"},
                                                      {",data\n-5,1.0\n", "-5"},
                                                      {",data\n123456789,1.0\n", "index"}};
  for (const auto& [text, word] : kBad) {
    try {
      read_sparse_int16(put("bad.csv", text), voxels.data(), Others::kStay);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("bad.csv"), std::string::npos) << error.what();
      EXPECT_EQ(error.fault(), Fault::kInput);
    }
  }
}

OpenKbpPatient zero_patient() {
  OpenKbpPatient patient = allocate_openkbp();
  for (Buffer* buffer : {&patient.ct, &patient.bits, &patient.dose})
    std::memset(buffer->data(), 0, static_cast<size_t>(buffer->size()));
  return patient;
}

TEST_F(OpenKbp, APatientComesBackAndAMissingStructureIsEmpty) {
  OpenKbpPatient patient = zero_patient();
  patient.spacing = {3.906, 3.906, 2.5};
  for (const int64_t index : random_indices(300)) {
    patient.ct.as<int16_t>()[index] = static_cast<int16_t>(1 + random_.below(4095));
    patient.dose.as<float>()[index] = static_cast<float>(static_cast<double>(random_.below(80000)) / 1000);
    // Larynx (5) is nowhere
    patient.bits.as<uint16_t>()[index] = static_cast<uint16_t>((random_.below(2048) & ~(1 << 5)) | 1 << 10);
  }
  const std::string path = (folder_ / "pt_1").string();
  write_openkbp(path, patient);
  EXPECT_FALSE(fs::exists(fs::path(path) / "Larynx.csv"));
  OpenKbpPatient back = allocate_openkbp();
  std::memset(back.bits.data(), 0xff, static_cast<size_t>(back.bits.size()));  // as another patient left it
  read_openkbp(path, &back);
  EXPECT_EQ(std::memcmp(back.ct.data(), patient.ct.data(), static_cast<size_t>(patient.ct.size())), 0);
  EXPECT_EQ(std::memcmp(back.bits.data(), patient.bits.data(), static_cast<size_t>(patient.bits.size())), 0);
  EXPECT_EQ(std::memcmp(back.dose.data(), patient.dose.data(), static_cast<size_t>(patient.dose.size())), 0);
  EXPECT_EQ(back.spacing, patient.spacing);

  const auto reader = open_volume(path);
  EXPECT_EQ(reader->info().channels, 11);
  const Volume masks = read_volume(path + ":masks"), bits = read_volume(path + ":bits");
  const Volume input = read_volume(path);
  for (int64_t s = 0; s < 10; ++s) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < kOpenKbpVoxels; ++i) {
      const int truth = patient.bits.as<uint16_t>()[i] >> s & 1;
      wrong += masks.as<uint8_t>()[s * kOpenKbpVoxels + i] != truth;
      wrong += input.as<int16_t>()[(s + 1) * kOpenKbpVoxels + i] != truth;
    }
    EXPECT_EQ(wrong, 0) << kOpenKbpStructures[static_cast<size_t>(s)];
  }
  const Volume prescription = read_volume(path + ":prescription");
  for (int64_t i = 0; i < kOpenKbpVoxels; ++i) {
    const int targets = patient.bits.as<uint16_t>()[i] >> 7 & 7;  // PTV56, PTV63, PTV70
    ASSERT_EQ(prescription.as<uint8_t>()[i], targets >= 4 ? 70 : targets >= 2 ? 63 : targets == 1 ? 56 : 0) << i;
  }
  std::vector<float> planned(kOpenKbpVoxels);
  plan_openkbp_dose({patient.ct.as<int16_t>(), patient.bits.as<uint16_t>(), patient.spacing}, planned.data());
  EXPECT_EQ(std::memcmp(read_volume(path + ":plan").data.data(), planned.data(), planned.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(bits.data.data(), patient.bits.data(), static_cast<size_t>(patient.bits.size())), 0);
  int16_t corner[2 * 3 * 4];
  const Box3 box{{60, 50, 40}, {62, 53, 44}};
  reader->read(box, 0, reinterpret_cast<std::byte*>(corner));
  EXPECT_EQ(corner[1 * 12 + 2 * 4 + 3], patient.ct.as<int16_t>()[(61 * 128 + 52) * 128 + 43]);
  EXPECT_THROW(open_volume(path + ":ptv"), Error);
}

}  // namespace
}  // namespace vox
