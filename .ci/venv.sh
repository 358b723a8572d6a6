#!/usr/bin/env bash
# Makes a virtual environment of Python, unless it is there. The name of its folder has the hash of the requirements. Its scripts name its path, so
# one that was moved is made anew.
#
# usage: venv.sh <folder> <file of requirements>
set -euo pipefail
environment=$1 requirements=$2

if [ "$(cat "$environment/complete" 2>/dev/null)" = "$environment" ] && "$environment/bin/python" -c "" 2>/dev/null; then
	exit 0
fi
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
