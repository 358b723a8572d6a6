#!/usr/bin/env bash
# Prints what the changes since a commit can affect: a line with the steps of .ci/run, or everything, then a line for each variable of
# Make that narrows them. A changed module affects the modules that require it; a file of no part below affects everything.
#
# usage: affected.sh <commit>
#        affected.sh - <file>...    as if these files had changed
set -euo pipefail
cd "$(dirname "$0")/.."

base=${1:?usage: affected.sh <commit>}
shift
if [ "$base" = - ]; then
	files=("$@")
else
	mapfile -t files < <(git diff --name-only "$(git merge-base "$base" HEAD)")
fi

everything() {
	echo everything
	exit 0
}

# make_variable prints a list of the Makefile.
make_variable() {
	make --no-print-directory -s -f Makefile -f /dev/stdin print <<<"print:; @echo \$($1)"
}
read -ra workspace <<<"$(make_variable WORKSPACE_MODULES)"
read -ra standalone <<<"$(make_variable STANDALONE_MODULES)"

# What else than its module a file affects: a pattern, and parts. A part is a module, docs, chart, demo, or a folder of
# whole-system tests.
declare -A modules=() parts=()
affect() {
	local part
	for part; do
		case $part in
		docs | chart | demo | e2e/*) parts[$part]=1 ;;
		*) modules[$part]=1 ;;
		esac
	done
}
for file in "${files[@]}"; do
	case $file in
	*.md | docs/* | mkdocs.yml | services/* | pkg/*) affect docs ;; # pages, and programs whose flags they list
	esac
	case $file in
	services/endpoint-picker/simulator/*) affect services/endpoint-picker/simulator ;;
	services/endpoint-picker/*) affect services/endpoint-picker chart demo e2e/picker e2e/ingress e2e/syncer e2e/autoscaler ;;
	services/ingress-reconciler/*) affect services/ingress-reconciler chart e2e/ingress ;;
	services/backendset-syncer/*) affect services/backendset-syncer chart e2e/syncer ;;
	services/edge-cache/test/clients/*) affect services/edge-cache/test/clients services/edge-cache ;;
	services/edge-cache/*) affect services/edge-cache chart e2e/edge e2e/nodepool ;;
	services/variant-autoscaler/*) affect services/variant-autoscaler chart e2e/autoscaler ;;
	services/nodepool-ingress/*) affect services/nodepool-ingress chart e2e/nodepool ;;
	pkg/*) affect pkg chart demo e2e/cluster e2e/picker e2e/ingress e2e/syncer e2e/autoscaler e2e/nodepool e2e/edge ;;
	deploy/emulators/*) affect deploy/emulators demo e2e/cluster e2e/picker e2e/ingress e2e/syncer e2e/autoscaler e2e/nodepool e2e/edge ;;
	deploy/local/e2e/cluster/*) affect deploy/local/e2e e2e/cluster ;;
	deploy/local/e2e/picker/*) affect deploy/local/e2e e2e/picker ;;
	deploy/local/e2e/ingress/*) affect deploy/local/e2e e2e/ingress ;;
	deploy/local/e2e/syncer/*) affect deploy/local/e2e e2e/syncer ;;
	deploy/local/e2e/edge/*) affect deploy/local/e2e e2e/edge ;;
	deploy/local/e2e/autoscaler/*) affect deploy/local/e2e e2e/autoscaler ;;
	deploy/local/e2e/nodepool/*) affect deploy/local/e2e e2e/nodepool ;;
	deploy/local/e2e/conformance/* | deploy/local/e2e/cmd/*conformance/*) affect deploy/local/e2e ;;
	deploy/local/images/*conformance/*) ;; # the nightly run reads it
	deploy/local/e2e/*) affect deploy/local/e2e e2e/cluster e2e/picker e2e/ingress e2e/syncer e2e/autoscaler e2e/nodepool e2e/edge ;;
	deploy/local/*) affect deploy/local deploy/local/e2e e2e/cluster e2e/picker e2e/ingress e2e/syncer e2e/autoscaler e2e/nodepool e2e/edge ;;
	deploy/charts/*) affect deploy/charts chart ;;
	deploy/examples/variant-autoscaler/*) affect chart e2e/autoscaler ;;
	deploy/examples/README.md) affect chart ;;
	deploy/examples/decision-api/*) affect services/endpoint-picker ;; # its tests run them
	deploy/examples/ingress/*) affect e2e/ingress ;;
	deploy/examples/edge-cache/*) affect e2e/edge ;;
	deploy/examples/nodepool-ingress/*) affect e2e/nodepool ;;
	deploy/examples/oci/* | deploy/examples/tutorial/*) ;; # docs and verify read them
	deploy/examples/inference/*) affect demo e2e/picker e2e/ingress e2e/syncer e2e/autoscaler ;;
	charts/endpoint-picker/*) affect chart e2e/picker e2e/ingress e2e/syncer e2e/autoscaler ;;
	charts/edge-cache/*) affect chart e2e/edge ;;
	charts/ingress-reconciler/*) affect chart e2e/ingress ;;
	charts/backendset-syncer/*) affect services/backendset-syncer chart e2e/syncer ;; # tests of the service apply the CRD
	charts/variant-autoscaler/*) affect services/variant-autoscaler chart e2e/autoscaler ;; # as above
	charts/nodepool-ingress/*) affect services/nodepool-ingress chart e2e/nodepool ;; # as above
	# Documents that tests read: affected_test.sh compares the list with the tests. Tests of charts render the commands of all of them.
	docs/reference/metrics/*) name=${file##*/} && affect "services/${name%.md}" chart ;;
	docs/services/endpoint-picker*) affect services/endpoint-picker chart ;;
	docs/services/ingress-reconciler*) affect services/ingress-reconciler chart ;;
	docs/services/nodepool-ingress*) affect services/nodepool-ingress chart ;;
	docs/services/backendset-syncer-conformance.md) affect deploy/local/e2e chart ;;
	docs/services/variant-autoscaler-zero.md) affect e2e/autoscaler chart ;;
	docs/services/variant-autoscaler.md) affect services/variant-autoscaler chart ;;
	docs/operations/migrate-from-yurtingress.md) affect e2e/nodepool chart ;;
	docs/services/* | docs/operations/* | docs/install.md | docs/tutorial.md | README.md) affect chart ;;
	docs/* | mkdocs.yml | *.md | LICENSE | .github/*) ;; # verify, lint and docs read them
	*) everything ;;
	esac
done

# requires prints the modules of this repository that a module requires.
requires() { sed -n 's|.*fairlead\.dev/\([^ ]*\) v.*|\1|p' "$1/go.mod"; }
grown=1
while [ "$grown" = 1 ]; do
	grown=0
	for module in "${workspace[@]}" "${standalone[@]}"; do
		[ -z "${modules[$module]:-}" ] || continue
		for required in $(requires "$module"); do
			if [ -n "${modules[$required]:-}" ]; then
				modules[$module]=1
				grown=1
			fi
		done
	done
done

only() { # of the modules given, those that are affected
	local module made=()
	for module; do
		[ -z "${modules[$module]:-}" ] || made+=("$module")
	done
	echo "${made[*]}"
}
packages=()
for folder in cluster picker ingress syncer autoscaler nodepool edge; do
	[ -z "${parts[e2e/$folder]:-}" ] || packages+=("./$folder/...")
done
steps=(doctor verify lint)
[ -z "${parts[docs]:-}" ] || steps+=(docs)
[ ${#modules[@]} = 0 ] || steps+=(test)
[ -z "${parts[chart]:-}" ] || steps+=(chart)
[ -z "${parts[demo]:-}" ] || steps+=(demo)
[ ${#modules[@]} = 0 ] || steps+=(test-system)
[ ${#packages[@]} = 0 ] || steps+=(e2e)
echo "${steps[*]}"
echo "WORKSPACE_MODULES=$(only "${workspace[@]}")"
echo "STANDALONE_MODULES=$(only "${standalone[@]}")"
echo "E2E_PACKAGES=${packages[*]}"
