#include "report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr double kBarSeconds = 0.1;           // between two drawings of the bar
constexpr double kAverageWeight = 0.3;        // of a new loss in the moving average; one comes with a logged row
constexpr double kSlowBytesPerSecond = 50e6;  // below this, storage is named
constexpr double kSlowAfterSeconds = 5;
constexpr const char *kBold = "1", *kDim = "2", *kYellow = "33";

int terminal_width(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "not finite";
  const double size = std::abs(loss);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3e", loss);
    return text;
  }
  return format_number(loss, 4);
}

std::string percent(double fraction) {
  return format_number(100 * fraction, fraction < 0.0995 ? 1 : 0) + " %";
}

std::string drawn_bar(double fraction, int width) {
  const int filled = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width));
  return "[" + std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(width - filled), '.') +
         "]";
}

std::string speed_text(const LoadProgress& now) {
  return now.seconds > 0 ? format_number(static_cast<double>(now.bytes_done) / now.seconds / 1e6, 0) + " MB/s" : "";
}

}  // namespace

std::string step_line(const StepProgress& now, std::optional<double> average_loss) {
  std::vector<std::string> parts;
  parts.push_back(concat("epoch ", now.epoch, "/", now.epochs));
  parts.push_back(concat("step ", now.step, "/", now.total_steps));
  if (now.loss) {
    std::string loss = "loss " + loss_text(*now.loss);
    if (average_loss) loss += " (mean " + loss_text(*average_loss) + ")";
    parts.push_back(loss);
  }
  if (now.samples_per_s)
    parts.push_back(format_number(*now.samples_per_s, *now.samples_per_s < 10 ? 2 : 1) + " samples/s");
  if (now.data_wait) parts.push_back("data wait " + percent(*now.data_wait));
  if (now.memory_gb) parts.push_back(format_number(*now.memory_gb, 1) + " GB");
  if (now.eta_s) parts.push_back("ETA " + human_seconds(*now.eta_s));
  return join(parts, "  ");
}

std::string epoch_line(const EpochSummary& summary) {
  std::vector<std::string> parts;
  parts.push_back(concat("epoch ", summary.epoch, "/", summary.epochs));
  if (summary.loss) parts.push_back("loss " + loss_text(*summary.loss));
  for (const auto& [name, value] : summary.terms) parts.push_back(name + " " + loss_text(value));
  for (const auto& [name, value] : summary.scores) parts.push_back("val " + name + " " + format_number(value, 4));
  parts.push_back(human_seconds(summary.seconds));
  if (summary.samples_per_s)
    parts.push_back(format_number(*summary.samples_per_s, *summary.samples_per_s < 10 ? 2 : 1) + " samples/s");
  if (summary.data_wait) parts.push_back("data wait " + percent(*summary.data_wait));
  if (summary.gpu_util) parts.push_back("GPU " + percent(*summary.gpu_util));
  if (summary.gpu_mem_gb) parts.push_back("GPU memory " + format_number(*summary.gpu_mem_gb, 1) + " GB");
  if (summary.host_rss_gb) parts.push_back("memory " + format_number(*summary.host_rss_gb, 1) + " GB");
  return join(parts, "  ");
}

std::string load_line(const LoadProgress& now) {
  std::vector<std::string> parts{
      concat(now.what, " ", human_bytes(now.bytes_done), " of ", human_bytes(now.bytes_total))};
  if (now.seconds > 0) parts.push_back(speed_text(now));
  if (now.bytes_done > 0 && now.bytes_done < now.bytes_total) {
    const double left = static_cast<double>(now.bytes_total - now.bytes_done) / static_cast<double>(now.bytes_done);
    parts.push_back("ETA " + human_seconds(left * now.seconds));
  }
  return join(parts, "  ");
}

bool is_screen(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && !(term && std::string(term) == "dumb");
}

Progress::Progress(const ProgressOptions& options) : options_(options) {
  using Style = ProgressOptions::Style;
  bar_ = options_.style == Style::kBar || (options_.style == Style::kAuto && is_screen(fileno(options_.out)));
  const char* no_colour = std::getenv("NO_COLOR");
  colour_ = bar_ && !(no_colour && *no_colour);
}

Progress::~Progress() {
  clear();
}

bool Progress::due(double seconds) {
  const auto now = std::chrono::steady_clock::now();
  if (last_shown_ && std::chrono::duration<double>(now - *last_shown_).count() < seconds) return false;
  last_shown_ = now;
  return true;
}

std::string Progress::styled(const std::string& text, const char* code) const {
  return colour_ ? concat("\x1b[", code, "m", text, "\x1b[0m") : text;
}

void Progress::show(const std::string& line) {
  if (!bar_) {
    print(line);
    return;
  }
  const size_t width = static_cast<size_t>(std::max(terminal_width(options_.out) - 1, 10));
  std::fputs(concat("\r\x1b[2K", styled(line.substr(0, width), kDim)).c_str(), options_.out);
  std::fflush(options_.out);
  bar_shown_ = true;
}

void Progress::print(const std::string& line) {
  clear();
  std::fputs((line + "\n").c_str(), options_.out);
  std::fflush(options_.out);
}

void Progress::clear() {
  if (!bar_shown_) return;
  std::fputs("\r\x1b[2K", options_.out);
  std::fflush(options_.out);
  bar_shown_ = false;
}

void Progress::step(const StepProgress& now) {
  if (now.loss && std::isfinite(*now.loss))
    average_loss_ = average_loss_ ? *average_loss_ + kAverageWeight * (*now.loss - *average_loss_) : *now.loss;
  if (now.loss) last_loss_ = now.loss;
  if (!due(bar_ ? kBarSeconds : options_.line_seconds)) return;
  StepProgress shown = now;
  shown.loss = last_loss_;
  const std::string line = step_line(shown, average_loss_);
  if (!bar_) {
    print(line);
    return;
  }
  const int room = terminal_width(options_.out) - 1 - static_cast<int>(line.size()) - 3;
  const double fraction =
      static_cast<double>(now.step_in_epoch) / static_cast<double>(std::max<int64_t>(now.steps_in_epoch, 1));
  show(room >= 8 ? drawn_bar(fraction, std::min(room, 24)) + " " + line : line);
}

void Progress::epoch(const EpochSummary& summary) {
  print(styled(epoch_line(summary), kBold));
}

void Progress::loading(const LoadProgress& now) {
  const double speed = now.seconds > 0 ? static_cast<double>(now.bytes_done) / now.seconds : 0;
  if (!slow_storage_said_ && now.seconds >= kSlowAfterSeconds && speed < kSlowBytesPerSecond) {
    slow_storage_said_ = true;
    message(styled(concat("slow storage: ", speed_text(now), " over ", human_seconds(now.seconds),
                          "; copy the data to a local disk, or expect the first epoch to wait for it."),
                   kYellow));
  }
  if (now.bytes_total == 0) return;  // nothing had to be read
  const bool complete = now.bytes_done >= now.bytes_total;
  if (complete) {
    print(load_line(now));
    last_shown_.reset();
  } else if (due(bar_ ? kBarSeconds : options_.line_seconds)) {
    show(load_line(now));
  }
}

void Progress::validating(int64_t done, int64_t total) {
  if (due(bar_ ? kBarSeconds : options_.line_seconds)) show(concat("validation ", done, "/", total));
}

void Progress::message(const std::string& line) {
  print(line);
}

}  // namespace vox
