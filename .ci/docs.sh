#!/usr/bin/env bash
# Builds the documentation site with MkDocs in a virtual environment, which is made when its requirements change.
#
# usage: docs.sh <folder of the environment> <folder of the site>
set -euo pipefail
environment=$1 site=$2

./.ci/venv.sh "$environment" docs/requirements.txt
# By the interpreter: the programs of an environment name the folder in which it was made.
NO_MKDOCS_2_WARNING=1 "$environment/bin/python" -m mkdocs build --strict --site-dir "$site"
