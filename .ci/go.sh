#!/usr/bin/env bash
# Compiles with the go command: all builds of this repository but those of tests go through here.
#
# A compiler that collects garbage less often takes an eighth less processor time. GOGC is set for these commands alone, as tests and
# what they start must run as users run them.
#
# usage: go.sh build|install|list|test [argument]...
set -euo pipefail

command=$1
shift
GOGC=400 exec go "$command" -p "${BUILD_JOBS:-$(nproc)}" "$@"
