#!/usr/bin/env bash
# Builds the documentation site with MkDocs in a virtual environment, which is made when its requirements change.
#
# usage: docs.sh <folder of the environment> <folder of the site>
set -euo pipefail
environment=$1 site=$2

if ! "$environment/bin/python" -c "import mkdocs" 2>/dev/null; then
	echo "docs: installing MkDocs" >&2
	rm -rf "$environment"
	# Without pip of its own: Debian has that in another package.
	python3 -m venv --without-pip "$environment"
	python3 -m pip --python "$environment/bin/python" install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
		--require-hashes --requirement docs/requirements.txt || {
		rm -rf "$environment"
		echo "docs: cannot install MkDocs: check the access to PyPI, and that pip is 22.3 or newer" >&2
		exit 1
	}
fi
# By the interpreter: the programs of an environment name the folder in which it was made.
NO_MKDOCS_2_WARNING=1 "$environment/bin/python" -m mkdocs build --strict --site-dir "$site"
