#!/bin/sh
# test.sh - installs what the tests need, builds every configuration and runs the whole suite.
#
#   sh deploy/test.sh           everything (about 15 minutes on two cores)
#   sh deploy/test.sh quick     the quick tier alone
# Tiers: release (all tests), dev with clang (compiles, quick), asan (ASan+UBSan), tsan. Last line: N passed, N failed, N skipped.
set -eu
cd "$(dirname "$0")/.."
. deploy/lib.sh

tier=${1:-all}
case "$tier" in
    all | quick) ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "unknown tier '$tier'; see --help" ;;
esac

# shellcheck disable=SC2086
install_packages $PACKAGES_RUN $PACKAGES_TEST
get_model
need_disk 3000
mkdir -p build
results=build/results
rm -rf "$results"
mkdir -p "$results"

# run NAME DIR ctest-arguments...: a tier; its failures are counted, not fatal here
run() {
    name=$1
    dir=$2
    shift 2
    say "tests: $name"
    ctest --test-dir "$dir" --no-tests=error --output-on-failure --output-junit "$PWD/$results/$name.xml" "$@" || true
}

if [ "$tier" = quick ]; then
    say "build: build/dev"
    build build/dev -DCMAKE_BUILD_TYPE=Debug
    run quick build/dev -L quick -j "$(jobs)"
else
    say "build: build/release"
    build build/release -DCMAKE_BUILD_TYPE=Release -DSLUICE_TESTS=ON
    run release build/release -LE alone -j "$(jobs)"
    run release-alone build/release -L alone
    say "build: build/clang (the second compiler)"
    build build/clang -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang
    run clang build/clang -L quick -j "$(jobs)"
    say "build: build/asan (address and undefined behaviour)"
    build build/asan -DCMAKE_BUILD_TYPE=Debug -DSLUICE_ASAN=ON
    run asan build/asan -L asan -j "$(jobs)"
    say "build: build/tsan (threads)"
    build build/tsan -DCMAKE_BUILD_TYPE=Debug -DSLUICE_TSAN=ON
    TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp second_deadlock_stack=1 ${TSAN_OPTIONS:-}" run tsan build/tsan -L tsan
    say "build: build/fuzz (libFuzzer targets compile and replay)"
    build_target=fuzz_targets
    build build/fuzz -DCMAKE_BUILD_TYPE=Debug -DSLUICE_FUZZ=ON -DCMAKE_C_COMPILER=clang
    run fuzz build/fuzz -R "^fuzz_"
fi

python3 tests/count.py "$results"
