#!/usr/bin/env python3
"""Builds the wheel of a static program: pip installs the program on PATH. The same program gives the same bytes.

usage: build_wheel.py <folder> <name of the distribution> <version> <os/arch> <program>

Prints the path of the wheel.
"""
import base64
import hashlib
import pathlib
import re
import sys
import zipfile

# A static program needs no libc, so it runs wherever pip accepts one of these tags.
TAGS = "manylinux_2_17_{0} manylinux2014_{0} musllinux_1_1_{0}"
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
MOMENT = (1980, 1, 1, 0, 0, 0)  # the first that a ZIP file can have
PHASES = {"alpha": "a", "beta": "b", "rc": "rc"}

METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: Load balancer for LLM model servers, and Endpoint Picker of the Gateway API Inference Extension
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{program} sends each request to the model server that is expected to answer first, by learned speeds, queues and prefix caches:

    {program} --servers=http://10.0.0.1:8000,http://10.0.0.2:8000 --proxy-bind-address=:8080

The wheel contains one static program, and no Python.
"""


def python_version(version):
    """Returns the form of a version such as v0.4.0-rc.1 that PEP 440 knows: 0.4.0rc1."""
    release, _, phase = version.removeprefix("v").partition("-")
    known = re.fullmatch(r"(alpha|beta|rc)\.?(\d+)", phase)
    if known:
        return f"{release}{PHASES[known[1]]}{known[2]}"
    return f"{release}.dev0+{phase.lower().replace('-', '.')}" if phase else release


def build(folder, name, version, platform, program):
    prefix = f"{name.replace('-', '_')}-{version}"
    tags = TAGS.format(MACHINES[platform]).split()
    wheel = ["Wheel-Version: 1.0", "Generator: build_wheel.py", "Root-Is-Purelib: false", *(f"Tag: py3-none-{tag}" for tag in tags)]
    info = f"{prefix}.dist-info"
    files = [  # path, content, mode
        (f"{prefix}.data/scripts/{program.name}", program.read_bytes(), 0o755),
        (f"{info}/licenses/LICENSE", (pathlib.Path(__file__).parent.parent / "LICENSE").read_bytes(), 0o644),
        (f"{info}/METADATA", METADATA.format(name=name, version=version, program=program.name).encode(), 0o644),
        (f"{info}/WHEEL", "\n".join([*wheel, ""]).encode(), 0o644),
    ]
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    target = pathlib.Path(folder) / f"{prefix}-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, content, mode in files:
            entry = zipfile.ZipInfo(path, MOMENT)
            entry.create_system, entry.external_attr = 3, (0o100000 | mode) << 16  # a file of Unix
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return target


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 6 or sys.argv[4] not in MACHINES:
        sys.exit(f"{__doc__}\nplatforms: {', '.join(MACHINES)}")
    print(build(sys.argv[1], sys.argv[2], python_version(sys.argv[3]), sys.argv[4], pathlib.Path(sys.argv[5])))
