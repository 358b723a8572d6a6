#!/usr/bin/env bash
# Writes the golden files of the module in the working directory anew. Only packages that use package golden have the flag.
set -euo pipefail

golden=fairlead.dev/pkg/golden
uses='{{range .TestImports}}{{if eq . "'$golden'"}}{{$.ImportPath}}{{"\n"}}{{end}}{{end}}'
uses+='{{range .XTestImports}}{{if eq . "'$golden'"}}{{$.ImportPath}}{{"\n"}}{{end}}{{end}}'
go list -f "$uses" ./... | sort -u | xargs --no-run-if-empty -I{} go test -count=1 {} -update
