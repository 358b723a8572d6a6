{{/* What this chart adds to the templates that the charts of Fairlead share. */}}

{{/* Fails for values that contradict each other. */}}
{{- define "backendset-syncer.check" -}}
{{- with .Values.oci -}}
{{- if and (eq .auth "api-key") (not .apiKeySecret) -}}
{{- fail "oci.auth api-key: set oci.apiKeySecret to the name of a Secret with the keys tenancy, user, region, fingerprint, key.pem and, if the private key has one, passphrase" -}}
{{- end -}}
{{- if and (eq .auth "config-file") (not .configSecret) -}}
{{- fail "oci.auth config-file: set oci.configSecret to the name of a Secret with the key config, a configuration file of OCI's SDK, and with the key files that it names" -}}
{{- end -}}
{{- if and (eq .auth "workload-identity") (not .region) -}}
{{- fail "oci.auth workload-identity: set oci.region, which these credentials do not contain" -}}
{{- end -}}
{{- if and .apiKeySecret (ne .auth "api-key") -}}
{{- fail (printf "oci.apiKeySecret: it has an effect only with oci.auth api-key, and oci.auth is %s" .auth) -}}
{{- end -}}
{{- if and .configSecret (ne .auth "config-file") -}}
{{- fail (printf "oci.configSecret: it has an effect only with oci.auth config-file, and oci.auth is %s" .auth) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.gateways.okeGatewayAPIAlias (not .Values.gateways.enabled) -}}
{{- fail "gateways.okeGatewayAPIAlias: it has an effect only with gateways.enabled" -}}
{{- end -}}
{{- with .Values.readinessGates -}}
{{- if and .webhook.enabled (not .enabled) -}}
{{- fail "readinessGates.webhook.enabled: set readinessGates.enabled too, or no program opens the gates that the webhook adds" -}}
{{- end -}}
{{- if and .webhook.certificateSecret (not .webhook.caBundle) (not .webhook.annotations) -}}
{{- fail "readinessGates.webhook.certificateSecret: set readinessGates.webhook.caBundle to the certificate of its authority, or let readinessGates.webhook.annotations inject it, such as cert-manager.io/inject-ca-from" -}}
{{- end -}}
{{- if and .webhook.caBundle (not .webhook.certificateSecret) -}}
{{- fail "readinessGates.webhook.caBundle: it has an effect only with readinessGates.webhook.certificateSecret" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "backendset-syncer.args" -}}
{{- include "backendset-syncer.check" . -}}
{{- include "backendset-syncer.sourceArgs" . }}
- --verify-interval={{ .Values.verifyInterval }}
{{- if .Values.readinessGates.enabled }}
- --readiness-gate-timeout={{ .Values.readinessGates.timeout }}
{{- end }}
{{- if include "backendset-syncer.responds" . }}
- --not-found-bind-address=:{{ .Values.gateways.responder.notFoundPort }}
- --no-backends-bind-address=:{{ .Values.gateways.responder.noBackendsPort }}
{{- end }}
{{- if .Values.readinessGates.webhook.enabled }}
- --webhook-address=:{{ .Values.readinessGates.webhook.port }}
- --webhook-certificates={{ include "backendset-syncer.certificatePath" . }}
{{- end }}
- --leader-elect={{ .Values.leaderElection.enabled }}
- --leader-election-namespace={{ .Release.Namespace }}
- --leader-election-lease-duration={{ .Values.leaderElection.leaseDuration }}
- --leader-election-renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --leader-election-retry-period={{ .Values.leaderElection.retryPeriod }}
- --discovery-interval={{ .Values.discoveryInterval }}
- --workers={{ .Values.workers }}
- --max-retry-delay={{ .Values.maxRetryDelay }}
- --kube-api-qps={{ .Values.kubeAPI.qps }}
- --kube-api-burst={{ .Values.kubeAPI.burst }}
- --metrics-bind-address=:{{ .Values.ports.metrics }}
- --health-probe-bind-address=:{{ .Values.ports.health }}
- --enable-pprof={{ .Values.pprof }}
- --log-level={{ .Values.logging.level }}
- --log-format={{ .Values.logging.format }}
{{- end -}}

{{/* The flags that the sub-command plan needs too. */}}
{{- define "backendset-syncer.sourceArgs" -}}
- --config-map={{ include "backendset-syncer.configMapNamespace" . }}/{{ include "backendset-syncer.configMapName" . }}
- --readiness-gates={{ .Values.readinessGates.enabled }}
- --gateways={{ .Values.gateways.enabled }}
{{- if .Values.gateways.enabled }}
- --gateway-namespace={{ .Release.Namespace }}
- --oke-gateway-api-alias={{ .Values.gateways.okeGatewayAPIAlias }}
{{- if include "backendset-syncer.responds" . }}
- --responder-service={{ .Release.Namespace }}/{{ include "backendset-syncer.responderName" . }}
{{- end }}
{{- end }}
- --oci-auth={{ .Values.oci.auth }}
{{- if eq .Values.oci.auth "api-key" }}
- --oci-key-directory={{ include "backendset-syncer.credentialsPath" . }}
{{- end }}
{{- if eq .Values.oci.auth "config-file" }}
- --oci-config-file={{ include "backendset-syncer.credentialsPath" . }}/config
- --oci-config-profile={{ .Values.oci.profile }}
{{- end }}
{{- with .Values.oci.region }}
- --oci-region={{ . }}
{{- end }}
{{- with .Values.oci.endpoint }}
- --oci-endpoint={{ . }}
{{- end }}
- --oci-requests-per-second={{ .Values.oci.requestsPerSecond }}
{{- end -}}

{{- define "backendset-syncer.env" -}}
{{- $env := list -}}
{{- if eq .Values.oci.auth "workload-identity" -}}
{{- $env = append $env (dict "name" "OCI_RESOURCE_PRINCIPAL_VERSION" "value" "2.2") -}}
{{- $env = append $env (dict "name" "OCI_RESOURCE_PRINCIPAL_REGION" "value" .Values.oci.region) -}}
{{- end -}}
{{- with concat $env .Values.env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "backendset-syncer.ports" -}}
- {name: metrics, containerPort: {{ .Values.ports.metrics }}}
- {name: health, containerPort: {{ .Values.ports.health }}}
{{- if .Values.readinessGates.webhook.enabled }}
- {name: webhook, containerPort: {{ .Values.readinessGates.webhook.port }}}
{{- end }}
{{- if include "backendset-syncer.responds" . }}
- {name: not-found, containerPort: {{ .Values.gateways.responder.notFoundPort }}}
- {name: no-backends, containerPort: {{ .Values.gateways.responder.noBackendsPort }}}
{{- end }}
{{- end -}}

{{/* Not empty if the program answers requests that have no backend. */}}
{{- define "backendset-syncer.responds" -}}
{{- if and .Values.gateways.enabled .Values.gateways.responder.enabled -}}true{{- end -}}
{{- end -}}

{{/* The Service of the responder. Its endpoints are all replicas, so it is not the one of the metrics, which no load balancer needs. */}}
{{- define "backendset-syncer.responderName" -}}
{{- printf "%s-responder" (include "backendset-syncer.fullname" .) -}}
{{- end -}}

{{- define "backendset-syncer.volumes" -}}
{{- with .Values.oci.apiKeySecret }}
- {name: oci, secret: {secretName: {{ . }}}}
{{- end }}
{{- with .Values.oci.configSecret }}
- {name: oci, secret: {secretName: {{ . }}}}
{{- end }}
{{- if .Values.readinessGates.webhook.enabled }}
- {name: webhook-certificate, secret: {secretName: {{ include "backendset-syncer.certificateSecret" . }}}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "backendset-syncer.volumeMounts" -}}
{{- if or .Values.oci.apiKeySecret .Values.oci.configSecret }}
- {name: oci, mountPath: {{ include "backendset-syncer.credentialsPath" . }}, readOnly: true}
{{- end }}
{{- if .Values.readinessGates.webhook.enabled }}
- {name: webhook-certificate, mountPath: {{ include "backendset-syncer.certificatePath" . }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "backendset-syncer.gracePeriod" -}}
{{- .Values.terminationGracePeriodSeconds -}}
{{- end -}}

{{- define "backendset-syncer.usesAPIServer" -}}
true
{{- end -}}

{{- define "backendset-syncer.metricsScheme" -}}
http
{{- end -}}

{{/* The rules of the NetworkPolicy beside those for metrics, probes, the API server and DNS. */}}
{{- define "backendset-syncer.ingressRules" -}}
{{- if .Values.readinessGates.webhook.enabled }}
- ports:
  - {port: webhook, protocol: TCP}
  {{- with .Values.networkPolicy.webhook.from }}
  from:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if include "backendset-syncer.responds" . }}
- ports:
  - {port: not-found, protocol: TCP}
  - {port: no-backends, protocol: TCP}
  {{- with .Values.networkPolicy.responder.from }}
  from:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "backendset-syncer.egressRules" -}}
- ports:
  {{- range .Values.networkPolicy.oci.ports }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
  {{- with .Values.networkPolicy.oci.to }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if eq .Values.oci.auth "instance-principal" }}
# The certificates of an instance come from its metadata service.
- ports:
  - {port: 80, protocol: TCP}
  to:
  - ipBlock: {cidr: 169.254.169.254/32}
{{- end }}
{{- if eq .Values.oci.auth "workload-identity" }}
# OKE exchanges the token of the ServiceAccount at this port of the API server.
- ports:
  - {port: 12250, protocol: TCP}
  {{- with .Values.networkPolicy.apiServer.to }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "backendset-syncer.healthPorts" -}}
- {port: health, protocol: TCP}
{{- end -}}

{{/* The ConfigMap with the configuration: the one that the chart creates, or an existing one. */}}
{{- define "backendset-syncer.configMapName" -}}
{{- default (include "backendset-syncer.fullname" .) .Values.configMap.name -}}
{{- end -}}

{{- define "backendset-syncer.configMapNamespace" -}}
{{- if .Values.configMap.name -}}
{{- default .Release.Namespace .Values.configMap.namespace -}}
{{- else -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{- define "backendset-syncer.credentialsPath" -}}
/etc/fairlead/oci
{{- end -}}

{{- define "backendset-syncer.certificatePath" -}}
/etc/fairlead/webhook
{{- end -}}

{{/* The Secret with the certificate of the webhook: the one that the chart creates, or an existing one. */}}
{{- define "backendset-syncer.certificateSecret" -}}
{{- default (printf "%s-webhook" (include "backendset-syncer.fullname" .)) .Values.readinessGates.webhook.certificateSecret -}}
{{- end -}}

{{/* The label of namespaces and pods that asks for the readiness gate. */}}
{{- define "backendset-syncer.injectLabel" -}}
fairlead.dev/oci-lb-ready-inject
{{- end -}}

{{/* What the two webhooks have in common: a list of the root context and the certificate of the authority, in base64. */}}
{{- define "backendset-syncer.webhook" -}}
{{- $root := first . -}}
clientConfig:
  service:
    name: {{ include "backendset-syncer.fullname" $root }}
    namespace: {{ $root.Release.Namespace }}
    port: 443
    path: /mutate-pods
  {{- with last . }}
  caBundle: {{ . }}
  {{- end }}
rules:
- apiGroups: [""]
  apiVersions: [v1]
  operations: [CREATE]
  resources: [pods]
  scope: Namespaced
admissionReviewVersions: [v1]
# Without the webhook pods start without the gate: it must never stop them.
failurePolicy: Ignore
reinvocationPolicy: IfNeeded
sideEffects: None
timeoutSeconds: {{ $root.Values.readinessGates.webhook.timeoutSeconds }}
{{- end -}}
