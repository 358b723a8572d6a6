#!/usr/bin/env bash
# Tests build_wheel.py: a fresh environment installs the wheel without a network and runs the picker, and a second build is the same.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
machine=$(go env GOARCH)
(cd services/endpoint-picker && GOWORK=off CGO_ENABLED=0 ../../.ci/go.sh build -o "$dir/endpoint-picker" .)
mkdir "$dir/first" "$dir/second"
wheel=$(.ci/build_wheel.py "$dir/first" fairlead-endpoint-picker v0.4.0-rc.1 "linux/$machine" "$dir/endpoint-picker")
touch -d 2000-01-01 "$dir/endpoint-picker"
again=$(.ci/build_wheel.py "$dir/second" fairlead-endpoint-picker v0.4.0-rc.1 "linux/$machine" "$dir/endpoint-picker")
cmp "$wheel" "$again"

python3 -m venv --without-pip "$dir/environment"
python3 -m pip --python "$dir/environment/bin/python" install --quiet --disable-pip-version-check --no-index "$wheel"
out=$("$dir/environment/bin/endpoint-picker" --version)
[[ $out == "endpoint-picker "* ]] || { echo "build_wheel_test: --version prints: $out" >&2; exit 1; }
out=$(python3 -m pip --python "$dir/environment/bin/python" show --disable-pip-version-check --files fairlead-endpoint-picker)
for line in "Version: 0.4.0rc1" "bin/endpoint-picker" "licenses/LICENSE"; do
	grep -q "$line" <<<"$out" || { printf 'build_wheel_test: pip shows no "%s":\n%s\n' "$line" "$out" >&2; exit 1; }
done
# pip checks the tags of the names, but not those of other machines, and no hash of RECORD.
other=$(.ci/build_wheel.py "$dir/second" fairlead-endpoint-picker v0.4.0 linux/arm64 "$dir/endpoint-picker")
name=fairlead_endpoint_picker-0.4.0-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl
[[ ${other##*/} == "$name" ]] || { echo "build_wheel_test: the wheel for arm64 is ${other##*/}" >&2; exit 1; }
python3 - "$wheel" "$other" <<'PYTHON'
import base64, csv, hashlib, io, sys, zipfile
for path in sys.argv[1:]:
    archive = zipfile.ZipFile(path)
    record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
    assert rows.pop(record) == ["", ""] and sorted([*rows, record]) == sorted(archive.namelist()), rows
    for name, (digest, size) in rows.items():
        content = archive.read(name)
        want = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert digest == "sha256=" + want and size == str(len(content)), name
PYTHON
