// What a run is about to do, known from its options and its data before the first step.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/options.h"

namespace vox {

class Store;
struct Dataset;
struct TrainState;

// Torch, CPU, device and placement: where they differ, so may the rounding.
std::map<std::string, std::string> machine_of(const c10::Device& device, const Options& options);

// Steps of an epoch over so many cases; `step_s` is what a step takes, where an epoch is given as a duration.
int64_t epoch_steps(const Options& options, size_t cases, double step_s);

// Whether nothing is left to do after `state`.
bool is_finished(const TrainState& state, const Options& options);

// Why validations ended the run; empty: they did not.
std::string why_early(const TrainState& state, const Options& options);

// What a run that ends says: at which step, why early, and the best so far.
std::string standing(const TrainState& state, const Options& options);

// What a finished run says: how far it is, and what would make it longer.
std::string how_to_go_on(const TrainState& state, const Options& options);

// Label values by class, where they are not 0, 1, 2, ...
std::vector<int64_t> class_values(const Options& options, const Store& store, int64_t label_channels);

// Notes which cases train, validate and were left out, by their ids as UTF-8.
void note_cases(const Store& store, TrainState& state);

// The same where the same cases train.
uint64_t key_of_cases(const Store& store);

// In what these differ from those of a checkpoint; empty: in nothing that it names.
std::string changed_cases(const TrainState& before, const TrainState& now);

void require_labels(const Dataset& dataset);  // of what trains and validates

}  // namespace vox
