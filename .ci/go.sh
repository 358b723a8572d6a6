#!/usr/bin/env bash
# Compiles with the go command: all builds of this repository but those of tests go through here.
#
# A compiler that collects garbage less often takes an eighth less processor time, and one that uses one processor takes a sixteenth less,
# while others use the rest. Both are set for these commands alone, as tests and what they start must run as users run them.
#
# usage: go.sh build|install|list|test [argument]...
set -euo pipefail

command=$1
shift
GOGC=400 GOMAXPROCS=1 exec go "$command" -p "${BUILD_JOBS:-$(nproc)}" "$@"
