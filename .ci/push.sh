#!/usr/bin/env bash
# Pushes layouts of images, with what refers to them, to <registry>/<name>, and charts to <registry>/charts/<name>. Images have the
# version as their tag; charts have it without the v. Credentials are those of `docker login`.
#
# usage: [LATEST=1] [INSECURE=1] push.sh <image> <helm> <registry> <version> "<layout>..." "<chart>..."
set -euo pipefail
image=$1 helm=$2 registry=$3 version=$4
read -ra layouts <<<"$5"
read -ra charts <<<"$6"

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

image_flags=() helm_flags=()
[ -z "${LATEST:-}" ] || image_flags+=(--latest)
[ -z "${INSECURE:-}" ] || image_flags+=(--insecure)
case ${INSECURE:+insecure}${registry%%/*} in
insecure* | localhost | localhost:* | 127.* | \[::1\]*) helm_flags+=(--plain-http) ;;
esac

"$image" push --registry "$registry" --version "$version" "${image_flags[@]}" "${layouts[@]}"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
for chart in "${charts[@]}"; do
	"$helm" package "$chart" --version "${version#v}" --app-version "$version" --destination "$packages" >/dev/null
	# helm says what it pushed among its complaints.
	"$helm" push "${helm_flags[@]}" "$packages/$(basename "$chart")-${version#v}.tgz" "oci://$registry/charts" 2>&1
done
