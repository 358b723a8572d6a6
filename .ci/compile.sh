#!/usr/bin/env bash
# Compiles packages and their tests in the module in the working directory, and links nothing.
#
# usage: compile.sh [build flag]... <package>...
set -euo pipefail

"$(dirname "$0")/go.sh" list -export -test "$@" >/dev/null
