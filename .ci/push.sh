#!/usr/bin/env bash
# Pushes layouts of images, with what refers to them, to <registry>/<name>, and charts to <registry>/charts/<name>. Images have the
# version as their tag; charts have it without the v. Credentials are those of `docker login`. With a key, signs the images and the charts,
# and writes the public key to a file: `image sign --help`.
#
# usage: [LATEST=1] [INSECURE=1] [COSIGN_PRIVATE_KEY=... COSIGN_PASSWORD=...] \
#        push.sh <image> <helm> <public key> <registry> <version> "<layout>..." "<chart>..."
set -euo pipefail
image=$1 helm=$2 public_key=$3 registry=$4 version=$5
read -ra layouts <<<"$6"
read -ra charts <<<"$7"

if [ -z "$registry" ]; then
	echo "push: say where to: make push REGISTRY=host/path VERSION=v0.4.0" >&2
	exit 2
fi
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "push: $version is not a version such as v0.4.0: charts need one. Build and push with VERSION=" >&2
	exit 2
fi
for layout in "${layouts[@]}"; do
	if [ ! -f "$layout/index.json" ]; then
		echo "push: $layout is missing: run make images VERSION=$version" >&2
		exit 1
	fi
done

push_flags=() sign_flags=() helm_flags=()
[ -z "${LATEST:-}" ] || push_flags+=(--latest)
[ -z "${INSECURE:-}" ] || push_flags+=(--insecure) sign_flags+=(--insecure)
case ${INSECURE:+insecure}${registry%%/*} in
insecure* | localhost | localhost:* | 127.* | \[::1\]*) helm_flags+=(--plain-http) ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$image" sign --public-key "$public_key" # a wrong key is an error before anything is pushed
"$image" push --registry "$registry" --version "$version" "${push_flags[@]}" "${layouts[@]}" | tee "$work/references"
for chart in "${charts[@]}"; do
	"$helm" package "$chart" --version "${version#v}" --app-version "$version" --destination "$work" >/dev/null
	# helm says what it pushed among its complaints.
	"$helm" push "${helm_flags[@]}" "$work/$(basename "$chart")-${version#v}.tgz" "oci://$registry/charts" 2>&1 | tee "$work/pushed"
	awk '$1 == "Pushed:" { tag = $2 } $1 == "Digest:" { digest = $2 } END { print tag "@" digest }' "$work/pushed" >>"$work/references"
done
mapfile -t references <"$work/references"
"$image" sign "${sign_flags[@]}" "${references[@]}"
