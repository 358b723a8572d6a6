# The embedded Kubernetes, the images it runs, the demo and the whole-system tests. Included by the Makefile.

LOCALKUBE := $(BIN)/localkube
IMAGES    := $(BIN)/images
CRDS      := $(BIN)/crds
# Where local-up keeps its state.
LOCAL_DIR ?= $(CURDIR)/.local/cluster
# What becomes an image for this machine: name = module and package of the binary.
IMAGE_BINARIES := endpoint-picker endpoint-picker-replay ingress-reconciler backendset-syncer variant-autoscaler nodepool-ingress edge-cache modelserver webhook echo ome ocilb probe
IMAGE_SOURCE_endpoint-picker    := services/endpoint-picker .
IMAGE_SOURCE_endpoint-picker-replay := services/endpoint-picker/simulator ./cmd/endpoint-picker-replay
IMAGE_SOURCE_ingress-reconciler := services/ingress-reconciler .
IMAGE_SOURCE_backendset-syncer  := services/backendset-syncer .
IMAGE_SOURCE_variant-autoscaler := services/variant-autoscaler .
IMAGE_SOURCE_nodepool-ingress   := services/nodepool-ingress .
IMAGE_SOURCE_edge-cache         := services/edge-cache .
IMAGE_SOURCE_modelserver        := deploy/emulators ./modelserver
IMAGE_SOURCE_webhook            := deploy/emulators ./webhook
IMAGE_SOURCE_echo               := deploy/emulators ./echo/cmd/echo
IMAGE_SOURCE_ome                := deploy/emulators ./ome/cmd/ome
IMAGE_SOURCE_ocilb              := deploy/emulators ./ocilb/cmd/ocilb
IMAGE_SOURCE_probe              := deploy/local ./internal/nstest/probe
# A second set of tags, of binaries with the race detector, for the whole-system tests.
IMAGE_TAG  ?= dev
RACE_TAG   := race

# The commit that upgrades of the ingress-reconciler are tested from: the last one before hosts had owners.
PREVIOUS := 0db25d6aff596f5c8d7385d7cef36fa7a19d34d5

GAIE_VERSION        := v1.6.0
GATEWAY_API_VERSION := v1.6.3

# Third-party programs as images. Their versions are pinned, so what the store has once is not made again.
HUB            := $(IMAGES)/refs/docker.io
ENVOY_IMAGE    := $(HUB)/envoyproxy/envoy/v$(ENVOY_VERSION)
# The version that the module of an image requires of what it is made of: <image>,<module>.
required        = $(shell sed -n 's|^require $(2) \(v[^ ]*\).*|\1|p' deploy/local/images/$(1)/go.mod)
ENVOY_GATEWAY  := $(call required,envoy-gateway,github.com/envoyproxy/gateway)
AI_GATEWAY     := $(call required,ai-gateway,github.com/envoyproxy/ai-gateway)
TRAEFIK        := $(call required,traefik,github.com/traefik/traefik/v3)
YURTHUB        := $(call required,yurthub,github.com/openyurtio/openyurt)
REGISTRY_IMAGE := $(call required,registry,github.com/distribution/distribution/v3)
# Module v0.315.0 is release v3.15.0.
PROMETHEUS     := $(shell echo $(call required,prometheus,github.com/prometheus/prometheus) | sed 's|^v0\.\([0-9]*\)\([0-9][0-9]\)\.|v\1.\2.|')
ADAPTER        := $(call required,prometheus-adapter,sigs.k8s.io/prometheus-adapter)
KEDA           := $(call required,keda,github.com/kedacore/keda/v2)
KEDA_IMAGES    := $(addprefix $(IMAGES)/refs/ghcr.io/kedacore/,keda/$(KEDA:v%=%) keda-metrics-apiserver/$(KEDA:v%=%))
ADAPTER_IMAGE  := registry.k8s.io/prometheus-adapter/prometheus-adapter
GATEWAY_IMAGES := $(HUB)/envoyproxy/gateway/$(ENVOY_GATEWAY) $(HUB)/envoyproxy/ai-gateway-controller/$(AI_GATEWAY)
GATEWAY_CHARTS := $(BIN)/charts

# The conformance suite, and the images that its manifests name.
CONFORMANCE        := $(call required,conformance,sigs.k8s.io/gateway-api-inference-extension/conformance)
CONFORMANCE_ECHO   := gcr.io/k8s-staging-gateway-api/echo-basic:v20251106-v1.3.0-263-g47c3435c
CONFORMANCE_PICKER := registry.k8s.io/gateway-api-inference-extension/lwepp:$(CONFORMANCE)

##@ Embedded Kubernetes

.PHONY: local
local: doctor-go doctor-local ## Build the embedded Kubernetes (8 minutes from nothing, a link after that)
	@./deploy/local/build.sh $(BIN)

.PHONY: local-images
local-images: local $(addprefix image-,$(IMAGE_BINARIES)) image-envoy gateways $(CRDS)/inferencepools.yaml ## Make all images of the demo, for this machine

.PHONY: image
image: ## Make one image for this machine: SERVICE=endpoint-picker [IMAGE_TAG=dev]
	@test -n "$(filter $(SERVICE),$(IMAGE_BINARIES))" || { echo "make image: say which: SERVICE=<one of $(IMAGE_BINARIES)>" >&2; exit 2; }
	@$(MAKE) --no-print-directory local image-$(SERVICE)

LOAD_IMAGE := ./deploy/local/images/load.sh $(BIN)

.PHONY: $(addprefix image-,$(IMAGE_BINARIES))
$(addprefix image-,$(IMAGE_BINARIES)): image-%: image-tool
	@cd $(firstword $(IMAGE_SOURCE_$*)) && GOWORK=off CGO_ENABLED=0 $(BUILD) -ldflags "-s -w $(LDFLAGS)" -o $(BIN)/$* $(lastword $(IMAGE_SOURCE_$*))
	@$(LOAD_IMAGE) fairlead/$*:$(IMAGE_TAG) $(BIN)/$*

# Folders of whole-system tests: what the tests of each run, and the third-party images that they need. The short form runs what CI runs.
E2E_FOLDERS := $(or $(patsubst ./%/...,%,$(E2E_PACKAGES)),$(if $(SHORT),,cluster) picker syncer autoscaler edge nodepool ingress)
e2e_binaries_cluster    := modelserver webhook endpoint-picker probe
e2e_binaries_picker     := endpoint-picker modelserver
e2e_binaries_syncer     := backendset-syncer endpoint-picker modelserver ocilb echo
e2e_binaries_autoscaler := variant-autoscaler endpoint-picker modelserver
e2e_binaries_edge       := edge-cache echo
e2e_binaries_nodepool   := nodepool-ingress edge-cache echo
e2e_binaries_ingress    := ingress-reconciler endpoint-picker modelserver ome echo webhook
e2e_third_party_cluster    := image-registry
e2e_third_party_picker     := $(if $(SHORT),,gateways)
e2e_third_party_syncer     := $(CRDS)/gateway-api.yaml
e2e_third_party_autoscaler := image-prometheus image-prometheus-adapter $(if $(SHORT),,keda)
e2e_third_party_edge       := traefik $(if $(SHORT),,yurthub)
e2e_third_party_nodepool   := traefik
e2e_third_party_ingress    := traefik $(if $(SHORT),,gateways image-previous)
# Programs of which tests roll from one version to the next.
NEXT_BINARIES := endpoint-picker modelserver $(if $(SHORT),,ingress-reconciler)

# Programs without the race detector: it needs too much memory for tests of limits, and users run the sub-commands of the ingress-reconciler.
e2e_plain_cluster := probe
e2e_plain_picker  := $(if $(SHORT),,endpoint-picker modelserver)
e2e_plain_ingress := ingress-reconciler

of_folders = $(sort $(foreach folder,$(E2E_FOLDERS),$($(1)_$(folder))))

.PHONY: images-race
images-race: doctor-cc local image-tool image-envoy $(CRDS)/inferencepools.yaml $(call of_folders,e2e_third_party) \
	$(if $(filter cluster,$(E2E_FOLDERS)),images-e2e) \
	$(addprefix image-race-,$(call of_folders,e2e_binaries)) \
	$(addprefix image-next-,$(filter $(NEXT_BINARIES),$(call of_folders,e2e_binaries))) \
	$(addprefix image-,$(call of_folders,e2e_plain)) ## Make the images of the whole-system tests, with the race detector

# Static with C too: <output folder>,<name>,<what to add to the version>.
build_race = mkdir -p $(BIN)/$(1) && cd $(firstword $(IMAGE_SOURCE_$(2))) && GOWORK=off CGO_ENABLED=1 $(BUILD) -race -tags netgo,osusergo \
	-ldflags "-s -w -linkmode external -extldflags -static $(LDFLAGS) -X fairlead.dev/pkg/version.version=$(VERSION)$(3)" -o $(BIN)/$(1)/$(2) $(lastword $(IMAGE_SOURCE_$(2)))
race_env = --env "GORACE=halt_on_error=1 $(GORACE)"

.PHONY: $(addprefix image-race-,$(IMAGE_BINARIES))
$(addprefix image-race-,$(IMAGE_BINARIES)): image-race-%: image-tool
	@$(call build_race,race,$*)
	@$(LOAD_IMAGE) fairlead/$*:$(RACE_TAG) $(BIN)/race/$* $(race_env)

# Another version, and so another binary: a roll changes what runs.
.PHONY: $(addprefix image-next-,$(NEXT_BINARIES))
$(addprefix image-next-,$(NEXT_BINARIES)): image-next-%: image-tool
	@$(call build_race,race-next,$*,-next)
	@$(LOAD_IMAGE) fairlead/$*:$(RACE_TAG)-next $(BIN)/race-next/$* $(race_env)

# A release of the services for this machine, which a test pushes and installs.
.PHONY: images-e2e
images-e2e: $(HELM)
	@$(MAKE) --no-print-directory images OCI=$(BIN)/oci-e2e PLATFORMS=linux/$$($(GO) env GOARCH) VERSION=v0.0.0-e2e RELEASE_IMAGES="$(notdir $(CHARTS))" >/dev/null

.PHONY: image-previous
image-previous: image-tool $(BIN)/previous/$(PREVIOUS) ## Make the image of an earlier ingress-reconciler, which tests upgrade
$(BIN)/previous/$(PREVIOUS): deploy/local/images/previous.sh | local
	@./deploy/local/images/previous.sh $(BIN) $(PREVIOUS)

.PHONY: image-envoy
image-envoy: $(ENVOY_IMAGE)
$(ENVOY_IMAGE): deploy/local/images/envoy/image.sh deploy/local/images/load.sh $(ENVOY) | local image-tool
	@./deploy/local/images/envoy/image.sh $(BIN) $(ENVOY) $(ENVOY_VERSION)

.PHONY: gateways
gateways: $(GATEWAY_IMAGES) $(GATEWAY_CHARTS)/gateway-helm/values.yaml ## Make images and charts of Envoy Gateway and Envoy AI Gateway

# The name and path of a program in its image are those that the charts count on, and its user is that of its own image.
$(HUB)/envoyproxy/gateway/$(ENVOY_GATEWAY): deploy/local/images/envoy-gateway/go.mod deploy/local/images/module-image.sh deploy/local/images/load.sh | local image-tool
	@./deploy/local/images/module-image.sh deploy/local/images/envoy-gateway $(BIN) envoyproxy/gateway:$(ENVOY_GATEWAY) /usr/local/bin/envoy-gateway 65532:65532 \
		-X github.com/envoyproxy/gateway/internal/cmd/version.envoyGatewayVersion=$(ENVOY_GATEWAY)

$(HUB)/envoyproxy/ai-gateway-controller/$(AI_GATEWAY): deploy/local/images/ai-gateway/go.mod deploy/local/images/module-image.sh deploy/local/images/load.sh | local image-tool
	@./deploy/local/images/module-image.sh deploy/local/images/ai-gateway $(BIN) envoyproxy/ai-gateway-controller:$(AI_GATEWAY) /app 65532:65532

$(GATEWAY_CHARTS)/gateway-helm/values.yaml: deploy/local/images/gateway-charts.sh deploy/local/images/envoy-gateway/go.mod deploy/local/images/ai-gateway/go.mod | doctor-go
	@./deploy/local/images/gateway-charts.sh $(GATEWAY_CHARTS)

.PHONY: traefik
traefik: $(HUB)/library/traefik/$(TRAEFIK) $(addprefix $(CRDS)/,gateway-api.yaml traefik.yaml) ## Make Traefik's image and the kinds that it reads

$(HUB)/library/traefik/$(TRAEFIK): $(addprefix deploy/local/images/,$(addprefix traefik/,go.mod replaced.txt dns.go.txt ecs.go.txt) module-image.sh load.sh) | local image-tool
	@./deploy/local/images/module-image.sh deploy/local/images/traefik $(BIN) docker.io/traefik:$(TRAEFIK) /usr/local/bin/traefik "" \
		-X github.com/traefik/traefik/v3/pkg/version.Version=$(TRAEFIK:v%=%)

# The controller of a profile of the nodepool-ingress: a program beside its templates, for tests with hostile objects.
.PHONY: haproxy-ingress
haproxy-ingress: $(BIN)/haproxy/controller ## Make HAProxy Ingress (4 minutes from nothing)

$(BIN)/haproxy/controller: deploy/local/images/haproxy-ingress/go.mod | doctor-go
	@echo "haproxy-ingress: building HAProxy Ingress (minutes from nothing)" >&2
	@rm -rf $(@D) && mkdir -p $(@D)
	@cd deploy/local/images/haproxy-ingress && export GOWORK=off && \
		$(GO) mod download github.com/jcmoraisjr/haproxy-ingress && \
		cp -r --no-preserve=mode "$$($(GO) list -m -f '{{.Dir}}' github.com/jcmoraisjr/haproxy-ingress)/rootfs" $(@D)/ && \
		$(CURDIR)/.ci/go.sh build -ldflags "-s -w" -o $@ $$(sed -n 's/^tool //p' go.mod)

# OpenYurt's proxy of the API server on a node: a program, as localkube runs it as a process of the node.
.PHONY: yurthub
yurthub: $(BIN)/yurthub ## Make Yurthub, with which a node starts its pods without the API server (4 minutes from nothing)

$(BIN)/yurthub: deploy/local/images/yurthub/go.mod | doctor-go
	@echo "yurthub: building OpenYurt $(YURTHUB) (minutes from nothing)" >&2
	@cd deploy/local/images/yurthub && GOWORK=off $(CURDIR)/.ci/go.sh build -ldflags "-s -w" -o $@ $$(sed -n 's/^tool //p' go.mod)

.PHONY: image-registry
image-registry: $(HUB)/distribution/distribution/$(REGISTRY_IMAGE:v%=%) ## Make the image of a registry, for tests

$(HUB)/distribution/distribution/$(REGISTRY_IMAGE:v%=%): deploy/local/images/registry/go.mod deploy/local/images/module-image.sh deploy/local/images/load.sh | local image-tool
	@./deploy/local/images/module-image.sh deploy/local/images/registry $(BIN) distribution/distribution:$(REGISTRY_IMAGE:v%=%) /bin/registry ""

# It has no pages for browsers, which need Node.js to build, and discovers targets by Kubernetes, files and HTTP only: the clients of
# two dozen clouds would double the build.
.PHONY: image-prometheus
image-prometheus: $(HUB)/prom/prometheus/$(PROMETHEUS) ## Make the image of a Prometheus, for tests

$(HUB)/prom/prometheus/$(PROMETHEUS): $(addprefix deploy/local/images/,prometheus/go.mod prometheus/tags.txt module-image.sh load.sh) | local image-tool
	@./deploy/local/images/module-image.sh deploy/local/images/prometheus $(BIN) prom/prometheus:$(PROMETHEUS) /bin/prometheus 65534:65534 \
		-X github.com/prometheus/common/version.Version=$(PROMETHEUS:v%=%)

.PHONY: image-prometheus-adapter
image-prometheus-adapter: $(IMAGES)/refs/$(ADAPTER_IMAGE)/$(ADAPTER) ## Make the image of prometheus-adapter, from which HorizontalPodAutoscalers get metrics, for tests

$(IMAGES)/refs/$(ADAPTER_IMAGE)/$(ADAPTER): $(addprefix deploy/local/images/,prometheus-adapter/go.mod module-image.sh load.sh) | local image-tool
	@./deploy/local/images/module-image.sh deploy/local/images/prometheus-adapter $(BIN) $(ADAPTER_IMAGE):$(ADAPTER) /adapter 65534:65534

.PHONY: keda
keda: $(KEDA_IMAGES) $(CRDS)/keda.yaml ## Make the images of KEDA's operator and metrics server, and the manifests that install them (15 CPU-minutes from nothing)

keda_image = PROGRAM=github.com/kedacore/keda/v2/cmd/$(1) ./deploy/local/images/module-image.sh deploy/local/images/keda $(BIN) \
	ghcr.io/kedacore/$(2):$(KEDA:v%=%) /$(3) 65532:65532 -X github.com/kedacore/keda/v2/version.Version=$(KEDA:v%=%)

$(IMAGES)/refs/ghcr.io/kedacore/keda/$(KEDA:v%=%): $(addprefix deploy/local/images/,keda/go.mod module-image.sh load.sh) | local image-tool
	@$(call keda_image,operator,keda,keda)

$(IMAGES)/refs/ghcr.io/kedacore/keda-metrics-apiserver/$(KEDA:v%=%): $(addprefix deploy/local/images/,keda/go.mod module-image.sh load.sh) | local image-tool
	@$(call keda_image,adapter,keda-metrics-apiserver,keda-adapter)

# As in KEDA's Makefile: those of a release without its admission webhooks.
$(CRDS)/keda.yaml: deploy/local/images/keda/go.mod | local
	@mkdir -p $(CRDS)
	@cd deploy/local/images/keda && GOWORK=off $(GO) mod download github.com/kedacore/keda/v2 && \
		$(LOCALKUBE) kubectl kustomize "$$($(GO) env GOMODCACHE)/github.com/kedacore/keda/v2@$(KEDA)/config/minimal" | \
		sed -E 's#((image|version): ?.*)\bmain$$#\1$(KEDA:v%=%)#' >$@.new
	@mv $@.new $@

.PHONY: images-conformance
images-conformance: $(HUB)/fairlead/conformance-suite/$(CONFORMANCE) image-endpoint-picker image-echo
	@# The manifests give lwepp no configuration, because it always obeys the header of the tests. Our picker obeys it only with a filter.
	@$(LOAD_IMAGE) $(CONFORMANCE_PICKER) $(BIN)/endpoint-picker --path /endpoint-picker --file deploy/local/images/conformance/testing-filter.yaml=/testing-filter.yaml \
		--arg --config-file=/testing-filter.yaml --arg --report-endpoint

$(HUB)/fairlead/conformance-suite/$(CONFORMANCE): $(addprefix deploy/local/images/,conformance/go.mod conformance/suite_test.go conformance/images.sh load.sh) | local image-tool
	@./deploy/local/images/conformance/images.sh $(BIN) fairlead/conformance-suite:$(CONFORMANCE) $(CONFORMANCE_ECHO) $(CONFORMANCE_PICKER)

# The kinds of the Gateway API, of its standard channel: in the version that we speak, which is not each gateway's.
$(CRDS)/gateway-api.yaml: deploy/local/local.mk | doctor-go
	@mkdir -p $(CRDS)
	@cd $(CRDS) && GOWORK=off $(GO) mod download sigs.k8s.io/gateway-api@$(GATEWAY_API_VERSION)
	@for file in "$$($(GO) env GOMODCACHE)"/sigs.k8s.io/gateway-api@$(GATEWAY_API_VERSION)/config/crd/standard/*.yaml; do \
		echo ---; cat "$$file"; done >$@

# Traefik's own: its image's module has them.
$(CRDS)/traefik.yaml: deploy/local/images/traefik/go.mod | doctor-go
	@mkdir -p $(CRDS)
	@cd deploy/local/images/traefik && GOWORK=off $(GO) mod download github.com/traefik/traefik/v3
	@cp "$$($(GO) env GOMODCACHE)/github.com/traefik/traefik/v3@$(TRAEFIK)/docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml" $@
	@chmod u+w $@

# The InferencePool kind belongs to the Gateway API Inference Extension: it is taken from its module.
$(CRDS)/inferencepools.yaml: services/endpoint-picker/go.mod
	@mkdir -p $(CRDS)
	@cd services/endpoint-picker && GOWORK=off $(GO) mod download sigs.k8s.io/gateway-api-inference-extension@$(GAIE_VERSION)
	@cp "$$($(GO) env GOMODCACHE)/sigs.k8s.io/gateway-api-inference-extension@$(GAIE_VERSION)/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml" $@
	@chmod u+w $@

.PHONY: local-up
local-up: local-images ## Start a cluster that stays until local-down (NODES=1)
	@$(LOCALKUBE) up --detach --dir $(LOCAL_DIR) --images $(IMAGES) --nodes $(or $(NODES),1) >/dev/null

.PHONY: local-down
local-down: ## End the cluster of local-up
	@if [ -x $(LOCALKUBE) ]; then $(LOCALKUBE) down --dir $(LOCAL_DIR); fi

.PHONY: demo-kubernetes
demo-kubernetes: doctor-port local-images ## The demo in a cluster: a Gateway, an HTTPRoute and an InferencePool, until Ctrl-C (PORT=8080)
	@cd deploy/local/e2e && GOWORK=off $(BUILD) -o $(BIN)/demo-kubernetes ./cmd/demo
	@exec $(BIN)/demo-kubernetes --gateway 127.0.0.1:$(PORT)

.PHONY: demo-edge
demo-edge: local traefik yurthub image-race-edge-cache image-race-echo ## Two node pools lose the cloud, then their containers or whole nodes restart: requests and failures per second, as tables
	@cd deploy/local/e2e && GOWORK=off $(GO) test -count=1 -parallel 1 -run '^(TestOutage|TestReboot)$$' -v ./edge

.PHONY: bench-local
bench-local: local ## Time and memory that a cluster takes, with bounds that an idle machine must keep
	@mkdir -p $(IMAGES)
	@cd deploy/local/e2e && GOWORK=off $(GO) test -p 1 -count=1 -run '^$$' -bench . -benchtime 3x ./cluster

.PHONY: bench-episode
bench-episode: local-images image-prometheus image-prometheus-adapter ## The published episode of llm-d with the variant-autoscaler, in real time: 41 minutes
	@cd deploy/local/e2e && GOWORK=off $(GO) test -count=1 -run '^$$' -bench Episode -benchtime 1x -timeout 60m -v ./autoscaler

# Of whole-system tests in a cluster that exists: see CONTRIBUTING.md.
export FAIRLEAD_KUBECONFIG REGISTRY

# Whole-system tests wait for clusters and streams nearly half of their time: half as many again run as there are processors. In the short form
# a package has few tests, and two packages run at the same time.
E2E_PARALLEL ?= $(shell echo $$(( $(JOBS) * 3 / 2 )))

.PHONY: e2e
e2e: images-race ## Whole-system tests in the embedded Kubernetes, or that of FAIRLEAD_KUBECONFIG (SHORT=1: their short form; RUN=regexp)
	@cd deploy/local/e2e && GOWORK=off $(if $(SHORT),TOGETHER=2) PACKAGES="$(E2E_FOLDERS:%=./%/...)" $(TEST) whole -parallel $(E2E_PARALLEL) -timeout 30m $(if $(SHORT),-short)

.PHONY: e2e-push
e2e-push: images-race $(addprefix image-race-,$(IMAGE_BINARIES)) ## Push the images of the whole-system tests to REGISTRY=host/path, for e2e with FAIRLEAD_KUBECONFIG (INSECURE=1: plain HTTP)
	@INSECURE=$(INSECURE) ./deploy/local/images/push.sh $(BIN) "$(REGISTRY)" $(IMAGE_BINARIES) -- $(NEXT_BINARIES)

.PHONY: conformance
conformance: local images-conformance image-envoy gateways $(CRDS)/inferencepools.yaml ## The conformance suite of the Gateway API Inference Extension, in ten minutes (RUN=one test)
	@cd deploy/local/e2e && GOWORK=off $(BUILD) -o $(BIN)/conformance/run ./cmd/conformance
	@exec $(BIN)/conformance/run --suite fairlead/conformance-suite:$(CONFORMANCE) --version $(VERSION) --out $(BIN)/conformance $(if $(RUN),--test $(RUN))

GATEWAY_CONFORMANCE := $(BIN)/gateway-conformance

.PHONY: gateway-conformance
gateway-conformance: local $(addprefix $(CRDS)/,gateway-api.yaml inferencepools.yaml) ## The conformance suite of the Gateway API with the backendset-syncer and an emulated load balancer, in ten minutes (RUN=one test)
	@mkdir -p $(GATEWAY_CONFORMANCE)
	@cd deploy/local/images/gateway-conformance && GOWORK=off $(CURDIR)/.ci/go.sh test -c -ldflags "-s -w" -o $(GATEWAY_CONFORMANCE)/suite .
	@cd services/backendset-syncer && GOWORK=off $(BUILD) -ldflags "$(LDFLAGS)" -o $(GATEWAY_CONFORMANCE)/backendset-syncer .
	@cd deploy/local/e2e && GOWORK=off $(BUILD) -o $(GATEWAY_CONFORMANCE)/run ./cmd/gateway-conformance
	@exec $(GATEWAY_CONFORMANCE)/run --suite $(GATEWAY_CONFORMANCE)/suite --program $(GATEWAY_CONFORMANCE)/backendset-syncer --version $(VERSION) \
		--crds $(CRDS)/gateway-api.yaml,$(CRDS)/inferencepools.yaml,$(CURDIR)/charts/backendset-syncer/crds --out $(GATEWAY_CONFORMANCE) $(if $(RUN),--test $(RUN))
