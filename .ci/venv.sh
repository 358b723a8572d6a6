#!/usr/bin/env bash
# Creates a virtual environment of Python, unless it exists. The name of its folder has the hash of the requirements. Its scripts name its
# path, so an environment that was moved is created again.
#
# usage: venv.sh <folder> <file of requirements>
set -euo pipefail
# Two names of one folder are one environment.
environment=$(realpath -m "$1") requirements=$2

complete() {
	[ "$(cat "$environment/complete" 2>/dev/null)" = "$environment" ] && "$environment/bin/python" -c "" 2>/dev/null
}

complete && exit 0
mkdir -p "${environment%/*}"
# Of several processes, one installs; the others wait and find its environment.
exec 9>"$environment.lock"
flock 9
complete && exit 0
echo "venv: installing $requirements" >&2
rm -rf "$environment"
# Without pip of its own: Debian has that in another package.
python3 -m venv --without-pip "$environment"
python3 -m pip --python "$environment/bin/python" install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
	--require-hashes --requirement "$requirements" || {
	rm -rf "$environment"
	echo "venv: cannot install $requirements: check the access to PyPI, and that pip is 22.3 or newer" >&2
	exit 1
}
echo "$environment" >"$environment/complete"
