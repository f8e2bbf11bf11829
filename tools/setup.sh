#!/usr/bin/env bash
# Installs what is missing and nothing else; a second call only looks.
#   tools/setup.sh build   what building needs: packages, and torch in .venv
#   tools/setup.sh test    also what the tests compare with: formatter, numpy, MONAI, ...
#   tools/setup.sh bench   also what only the benchmarks run beside us: TorchIO, nnU-Net's transforms, ...
#   tools/setup.sh gpu     also the CUDA build of torch, to compile and link against (no GPU needed)
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}

packages=(g++ cmake ninja-build ccache mold git libcli11-dev libyaml-cpp-dev nlohmann-json3-dev libhdf5-dev zlib1g-dev
          libzstd-dev liblz4-dev libblosc-dev libdeflate-dev libpng-dev libgtest-dev libgmock-dev
          libbenchmark-dev python3-venv)
torch_package="torch==2.13.0"
gpu_torch_package="torch==2.11.0"

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || { echo "Please install: ${missing[*]}" >&2; exit 1; }
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Please install as root: apt-get install ${missing[*]}" >&2; exit 1; }
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq
  local size
  size=$(apt-get install --no-install-recommends --print-uris -qq "${missing[@]}" 2>/dev/null |
         awk '{total += $3} END {printf "%.0f", total / 1e6}')
  echo "Installing ${#missing[@]} packages (download: ${size:-some} MB): ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# install_python VENV STAMP ARGUMENTS...: pip install, once for these arguments.
install_python() {
  local venv=$1 stamp=$1/.installed-$2
  shift 2
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  [ "$(cat "$stamp" 2>/dev/null)" = "$*" ] && return
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pip install -q --disable-pip-version-check ${PIP_ARGS:-} "$@"
  echo "$*" > "$stamp"
}

has_torch() { "$1/bin/python" -c "import torch, sys; sys.exit(torch.__version__.split('+')[0] != '$2')" 2>/dev/null; }

install_torch() {
  if [ -n "${TORCH_DIR:-}" ]; then
    [ -f "$TORCH_DIR/version.py" ] || { echo "TORCH_DIR=$TORCH_DIR is no torch package folder" >&2; exit 1; }
    [ "$what" = build ] && return
  fi
  if ! has_torch .venv "${torch_package#*==}"; then
    echo "Installing $torch_package into .venv (download: 0.2 GB for a CPU build, up to 3 GB with CUDA;" \
         "TORCH_DIR=... uses one you have, PIP_ARGS=... is passed to pip)"
  fi
  install_python .venv torch "$torch_package"
}

install_packages "${packages[@]}"
install_torch
if [ "$what" = test ] || [ "$what" = bench ]; then
  # The report is looked at in a browser; on Ubuntu the package is only a pointer to another store, so it is left out.
  grep -qx 'ID=debian' /etc/os-release && install_packages chromium
  [ -f .venv/.installed-peers ] || echo "Installing what the tests compare with into .venv (download: about 0.3 GB)"
  install_python .venv peers -r tools/requirements-test.txt
  install_python .venv peers-no-deps --no-deps -r tools/requirements-test-no-deps.txt
fi
if [ "$what" = bench ]; then
  [ -f .venv/.installed-bench-peers ] || echo "Installing what the benchmarks run beside us into .venv (download: 0.1 GB)"
  install_python .venv bench-peers --no-deps -r tools/requirements-bench.txt
fi
if [ "$what" = gpu ]; then
  [ -f .venv-gpu/.installed-torch ] || echo "Installing $gpu_torch_package with CUDA into .venv-gpu (download: 0.5 GB)"
  install_python .venv-gpu torch --no-deps "$gpu_torch_package"
fi
