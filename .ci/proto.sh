#!/usr/bin/env bash
# Generates the Go code of the .proto files of services.
#
# usage: proto.sh <protoc> <protoc-gen-go> <protoc-gen-go-grpc>
set -euo pipefail

protoc=$1 gen_go=$2 gen_grpc=$3

git ls-files --cached --others --exclude-standard -- 'services/*.proto' | while read -r file; do
	dir=$(dirname "$file")
	"$protoc" --plugin=protoc-gen-go="$gen_go" --plugin=protoc-gen-go-grpc="$gen_grpc" --proto_path="$dir" \
		--go_out="$dir" --go_opt=paths=source_relative --go-grpc_out="$dir" --go-grpc_opt=paths=source_relative "$(basename "$file")"
done
