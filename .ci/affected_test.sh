#!/usr/bin/env bash
# Tests affected.sh: what a change of each kind of file runs.
set -euo pipefail
cd "$(dirname "$0")"

failed=0
expect() { # wanted steps, wanted modules, wanted whole-system tests, files
	local want="$1|$2|$3"
	shift 3
	local got
	got=$(./affected.sh - "$@" | sed 's|^[A-Z0-9_]*=||' | tr '\n' '|')
	got=$(awk -F'|' '{ modules = $2 ($2 != "" && $3 != "" ? " " : "") $3; print $1 "|" modules "|" $4 }' <<<"$got")
	if [ "$got" != "$want" ]; then
		printf 'affected.sh - %s\n  got  %s\n  want %s\n' "$*" "$got" "$want" >&2
		failed=1
	fi
}

expect "doctor verify lint" "" "" .github/dependabot.yml LICENSE
expect "doctor verify lint docs" "" "" docs/adr/0001-client-go-without-controller-runtime.md CONTRIBUTING.md mkdocs.yml
expect "doctor verify lint docs chart e2e" "" ./ingress/... charts/ingress-reconciler/README.md
expect "doctor verify lint docs test chart test-system e2e" services/ingress-reconciler ./ingress/... services/ingress-reconciler/main.go
expect "doctor verify lint docs test chart demo test-system e2e" "services/endpoint-picker services/endpoint-picker/simulator" "./picker/... ./ingress/... ./syncer/... ./autoscaler/..." services/endpoint-picker/main.go
expect "doctor verify lint docs test test-system" services/endpoint-picker/simulator "" services/endpoint-picker/simulator/README.md
expect "doctor verify lint docs chart e2e" "" ./autoscaler/... deploy/examples/variant-autoscaler/keda-external.yaml deploy/examples/README.md
# What requires the changed module is affected too, over several steps.
expect "doctor verify lint test demo test-system e2e" "services/ingress-reconciler services/backendset-syncer services/variant-autoscaler deploy/emulators deploy/local/e2e services/variant-autoscaler/test/promql" \
	"./cluster/... ./picker/... ./ingress/... ./syncer/... ./autoscaler/... ./nodepool/... ./edge/..." deploy/emulators/echo/echo.go
expect "doctor verify lint docs test chart test-system e2e" services/backendset-syncer ./syncer/... services/backendset-syncer/main.go
expect "doctor verify lint docs test chart test-system e2e" "services/variant-autoscaler services/variant-autoscaler/test/promql" ./autoscaler/... services/variant-autoscaler/main.go
expect "doctor verify lint docs test chart test-system e2e" services/edge-cache "./nodepool/... ./edge/..." services/edge-cache/main.go
expect "doctor verify lint test test-system e2e" deploy/local/e2e ./cluster/... deploy/local/e2e/cluster/node_test.go
# The conformance suite runs every night.
expect "doctor verify lint test test-system" deploy/local/e2e "" deploy/local/e2e/conformance/expected.yaml deploy/local/e2e/cmd/conformance/main.go
expect "doctor verify lint test test-system" deploy/local/e2e "" deploy/local/e2e/cmd/gateway-conformance/main.go
expect "doctor verify lint" "" "" deploy/local/images/conformance/go.mod deploy/local/images/gateway-conformance/go.mod
expect "doctor verify lint chart e2e" "" ./ingress/... charts/ingress-reconciler/values.yaml
expect "doctor verify lint test chart test-system e2e" services/backendset-syncer ./syncer/... charts/backendset-syncer/crds/fairlead.dev_backendsetbindings.yaml
expect "doctor verify lint test chart test-system e2e" "services/variant-autoscaler services/variant-autoscaler/test/promql" ./autoscaler/... charts/variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml
# One unknown file is enough for everything.
expect everything "" "" docs/style.md Makefile

expect "doctor verify lint docs test chart test-system" services/edge-cache "" docs/reference/metrics/edge-cache.md docs/operations/edge-cache.md
expect "doctor verify lint docs chart e2e" "" ./nodepool/... docs/operations/migrate-from-yurtingress.md docs/services/edge-cache.md

# A change of a document runs the tests that read it.
while IFS=: read -r test document; do
	case $test in
	deploy/local/e2e/conformance/*) part=deploy/local/e2e ;;
	deploy/local/e2e/*) part=$(cut -d / -f 4 <<<"$test") && part=./$part/... ;;
	*) part=$(cut -d / -f 1,2 <<<"$test") ;;
	esac
	grep -qF -- "$part" <<<"$(./affected.sh - "$document")" || {
		echo "affected.sh - $document: $part is missing, and $test reads the document" >&2
		failed=1
	}
done < <(cd .. && git grep -oE '"(\.\./)*docs/[a-z0-9/-]+\.md"' -- 'services/*_test.go' 'deploy/local/e2e/*_test.go' | sed 's|"\(\.\./\)*||; s|"$||')
[ $failed = 0 ] || exit 1

# A module that no pattern knows runs everything: a new service cannot be forgotten.
[ "$(./affected.sh - services/new/main.go)" = "$(./affected.sh - go.work)" ]
