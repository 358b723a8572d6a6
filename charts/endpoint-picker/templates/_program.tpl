{{/* What this chart adds to the templates that the charts of Fairlead share. */}}

{{/* The source of endpoints: pool, pools, service, selector or file. */}}
{{- define "endpoint-picker.source" -}}
{{- $given := list -}}
{{- if .Values.pool.name -}}{{- $given = append $given "pool" -}}{{- end -}}
{{- if .Values.pool.names -}}{{- $given = append $given "pools" -}}{{- end -}}
{{- if .Values.pool.all -}}{{- $given = append $given "service" -}}{{- end -}}
{{- if .Values.endpoints.selector -}}{{- $given = append $given "selector" -}}{{- end -}}
{{- if .Values.endpoints.configMap -}}{{- $given = append $given "file" -}}{{- end -}}
{{- if ne (len $given) 1 -}}
{{- fail "set exactly one of pool.name, pool.names, pool.all, endpoints.selector and endpoints.configMap" -}}
{{- end -}}
{{- if and .Values.inferencePool.create (not .Values.pool.name) -}}
{{- fail "inferencePool.create: set pool.name, and no other source of endpoints" -}}
{{- end -}}
{{- if and .Values.pool.all (ne (include "endpoint-picker.poolNamespace" .) .Release.Namespace) -}}
{{- fail "pool.all: the InferencePools and their picker must be in the namespace of the release; leave pool.namespace empty" -}}
{{- end -}}
{{- if and .Values.pool.max (not .Values.pool.all) -}}
{{- fail "pool.max: it has an effect only with pool.all; leave it out" -}}
{{- end -}}
{{- if and .Values.endpoints.configMap (or .Values.metrics.auth .Values.configMap.name) -}}
{{- fail "endpoints.configMap: the picker does not use the API server, which metrics.auth and configMap.name need; leave them unset" -}}
{{- end -}}
{{- if and .Values.proxy.tls (not (and .Values.proxy.enabled .Values.gateway.secureServing)) -}}
{{- fail "proxy.tls: it needs proxy.enabled, and the certificate of gateway.secureServing; set both, or leave it out" -}}
{{- end -}}
{{- if and .Values.proxy.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.proxy.from) -}}
{{- fail "networkPolicy.proxy.from: with proxy.enabled, give the peers that may connect to the proxy listener" -}}
{{- end -}}
{{- first $given -}}
{{- end -}}

{{- define "endpoint-picker.args" -}}
{{- $source := include "endpoint-picker.source" . -}}
{{- if eq $source "pool" -}}
- --pool-name={{ .Values.pool.name }}
- --pool-group={{ .Values.pool.group }}
{{- else if eq $source "pools" -}}
{{- range .Values.pool.names }}
- --pool={{ . }}
{{- end }}
- --pool-group={{ .Values.pool.group }}
{{- else if eq $source "service" -}}
- --picker-service={{ include "endpoint-picker.fullname" . }}
{{- with .Values.pool.max }}
- --max-pools={{ . }}
{{- end }}
- --pool-group={{ .Values.pool.group }}
{{- else if eq $source "selector" -}}
- {{ printf "--endpoint-selector=%s" .Values.endpoints.selector | quote }}
- --endpoint-target-ports={{ join "," .Values.endpoints.targetPorts }}
{{- else -}}
- --endpoints-file={{ include "endpoint-picker.endpointsPath" . }}/{{ .Values.endpoints.configMapKey }}
{{- end }}
{{- if ne $source "file" }}
- --pool-namespace={{ include "endpoint-picker.poolNamespace" . }}
{{- end }}
- --grpc-port={{ .Values.ports.grpc }}
- --grpc-health-port={{ .Values.ports.grpcHealth }}
- --metrics-bind-address=:{{ .Values.ports.metrics }}
- --health-probe-bind-address=:{{ .Values.ports.health }}
- --secure-serving={{ .Values.gateway.secureServing }}
{{- if .Values.gateway.certificateSecret }}
- --cert-path={{ include "endpoint-picker.certificatePath" . }}
{{- end }}
{{- if .Values.gateway.clientCASecret }}
- --client-ca-file={{ include "endpoint-picker.clientCAPath" . }}/ca.crt
{{- end }}
{{- range .Values.gateway.clientNames }}
- {{ printf "--client-name=%s" . | quote }}
{{- end }}
- --enable-cert-reload={{ .Values.tls.reload }}
- --tls-min-version={{ .Values.tls.minVersion }}
{{- with .Values.tls.cipherSuites }}
- --tls-cipher-suites={{ join "," . }}
{{- end }}
- --grpc-max-recv-msg-size={{ .Values.gateway.maxReceiveMessage }}
- --grpc-max-send-msg-size={{ .Values.gateway.maxSendMessage }}
- --metrics-endpoint-auth={{ .Values.metrics.auth }}
{{- if .Values.metrics.certificateSecret }}
- --metrics-cert-dir={{ include "endpoint-picker.metricsCertificatePath" . }}
{{- if .Values.metrics.verifyClients }}
- --metrics-client-ca-file={{ include "endpoint-picker.metricsCertificatePath" . }}/ca.crt
{{- end }}
{{- end }}
- --body-mode={{ .Values.gateway.bodyMode }}
- --max-request-body={{ .Values.gateway.maxRequestBody }}
- --max-buffered-bytes={{ .Values.gateway.maxBufferedBytes }}
- --max-streams={{ .Values.gateway.maxStreams | int }}
- --request-body-timeout={{ .Values.gateway.requestBodyTimeout }}
- --stream-idle-timeout={{ .Values.gateway.streamIdleTimeout }}
- --early-close={{ .Values.gateway.earlyClose }}
- --emit-endpoint-scores={{ .Values.gateway.emitEndpointScores }}
- --explain={{ .Values.gateway.explain }}
- --report-endpoint={{ .Values.gateway.reportEndpoint }}
- --disable-endpoint-subset-filter={{ .Values.gateway.disableEndpointSubsetFilter }}
{{- if .Values.proxy.enabled }}
- --proxy-bind-address=:{{ .Values.ports.proxy }}
- --proxy-tls={{ .Values.proxy.tls }}
- --proxy-forwarded-headers={{ .Values.proxy.forwardedHeaders }}
- --proxy-max-connections-per-server={{ .Values.proxy.maxConnectionsPerServer | int }}
- --proxy-max-attempts={{ .Values.proxy.maxAttempts | int }}
{{- end }}
{{- with .Values.decisionAPI }}
{{- if .enabled }}
- --decision-bind-address=:{{ $.Values.ports.decision }}
- --decision-tls={{ .tls }}
- --decision-timeout={{ .timeout }}
{{- end }}
{{- end }}
- --refresh-metrics-interval={{ .Values.scraping.interval }}
- --refresh-metrics-idle-interval={{ .Values.scraping.idleInterval }}
- --refresh-metrics-budget={{ .Values.scraping.budget }}
- --refresh-metrics-timeout={{ .Values.scraping.timeout }}
- --metrics-staleness-threshold={{ .Values.scraping.stalenessThreshold }}
- --lease-timeout={{ .Values.scraping.leaseTimeout }}
- --model-server-metrics-port={{ .Values.scraping.metricsPort }}
- --model-server-metrics-scheme={{ .Values.scraping.metricsScheme }}
- --probe-tokenizers={{ .Values.scraping.probeTokenizers }}
- --prefix-index-max-bytes={{ .Values.prefixIndexMaxBytes }}
{{- if .Values.sharing.enabled }}
- --replica-addresses={{ include "endpoint-picker.replicasService" . }}.{{ .Release.Namespace }}.svc:{{ .Values.ports.replicas }}
- --replica-bind-address=:{{ .Values.ports.replicas }}
{{- end }}
- --eject-after={{ .Values.ejection.after | int }}
- --ejection-time={{ .Values.ejection.time }}
- --ejection-time-max={{ .Values.ejection.longest }}
{{- if .Values.config }}
- --config-file={{ include "endpoint-picker.configPath" . }}/{{ include "endpoint-picker.configKey" . }}
{{- else if .Values.configMap.name }}
- --config-map={{ include "endpoint-picker.configMapNamespace" . }}/{{ .Values.configMap.name }}
{{- with .Values.configMap.key }}
- --config-map-key={{ . }}
{{- end }}
{{- end }}
- --drain-delay={{ .Values.drain.delay }}
- --drain-timeout={{ .Values.drain.timeout }}
- --kube-api-qps={{ .Values.kubeAPI.qps }}
- --kube-api-burst={{ .Values.kubeAPI.burst }}
- --log-level={{ .Values.logging.level }}
- --log-format={{ .Values.logging.format }}
- --enable-pprof={{ .Values.pprof }}
- --tracing={{ .Values.telemetry.tracing.enabled }}
- --log-requests={{ .Values.telemetry.logRequests }}
- --debug-picks={{ .Values.telemetry.debugPicks }}
- --enable-grpc-stream-metrics={{ .Values.telemetry.streamMetrics }}
- --legacy-metrics={{ .Values.telemetry.legacyMetrics }}
{{- if .Values.recording.enabled }}
{{- if .Values.gateway.earlyClose }}
{{- fail "recording.enabled: it has no effect with gateway.earlyClose, which hides all answers; leave one of them out" -}}
{{- end }}
{{- if and .Values.recording.existingClaim (or (ne (int .Values.replicas) 1) (ne .Values.strategy.type "Recreate")) }}
{{- fail "recording.existingClaim: replicas cannot share a recording; set replicas: 1 and strategy.type: Recreate" -}}
{{- end }}
- --record-file={{ include "endpoint-picker.recordingPath" . }}/picks.jsonl
- --record-max-bytes={{ .Values.recording.maxBytes }}
{{- end }}
{{- end -}}

{{- define "endpoint-picker.env" -}}
{{- $env := list -}}
{{- with .Values.telemetry.tracing.endpoint -}}
{{- $env = append $env (dict "name" "OTEL_EXPORTER_OTLP_ENDPOINT" "value" .) -}}
{{- end -}}
{{- with concat $env .Values.env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "endpoint-picker.ports" -}}
- {name: grpc-ext-proc, containerPort: {{ .Values.ports.grpc }}}
- {name: grpc-health, containerPort: {{ .Values.ports.grpcHealth }}}
{{- if .Values.decisionAPI.enabled }}
- {name: decision, containerPort: {{ .Values.ports.decision }}}
{{- end }}
- {name: metrics, containerPort: {{ .Values.ports.metrics }}}
- {name: health, containerPort: {{ .Values.ports.health }}}
{{- if .Values.sharing.enabled }}
- {name: replicas, containerPort: {{ .Values.ports.replicas }}}
{{- end }}
{{- if .Values.proxy.enabled }}
- {name: http-proxy, containerPort: {{ .Values.ports.proxy }}}
{{- end }}
{{- end -}}

{{- define "endpoint-picker.volumes" -}}
{{- with .Values.gateway.certificateSecret }}
- {name: certificate, secret: {secretName: {{ . }}}}
{{- end }}
{{- with .Values.gateway.clientCASecret }}
- {name: client-ca, secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- end }}
{{- with .Values.metrics.certificateSecret }}
- {name: metrics-certificate, secret: {secretName: {{ . }}}}
{{- end }}
{{- if .Values.config }}
- {name: config, configMap: {name: {{ include "endpoint-picker.fullname" . }}}}
{{- end }}
{{- if eq (include "endpoint-picker.source" .) "file" }}
- {name: endpoints, configMap: {name: {{ .Values.endpoints.configMap }}}}
{{- end }}
{{- if .Values.recording.enabled }}
{{- if .Values.recording.existingClaim }}
- {name: recording, persistentVolumeClaim: {claimName: {{ .Values.recording.existingClaim }}}}
{{- else }}
- {name: recording, emptyDir: {sizeLimit: {{ .Values.recording.volumeSize }}}}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "endpoint-picker.volumeMounts" -}}
{{- if .Values.gateway.certificateSecret }}
- {name: certificate, mountPath: {{ include "endpoint-picker.certificatePath" . }}, readOnly: true}
{{- end }}
{{- if .Values.gateway.clientCASecret }}
- {name: client-ca, mountPath: {{ include "endpoint-picker.clientCAPath" . }}, readOnly: true}
{{- end }}
{{- if .Values.metrics.certificateSecret }}
- {name: metrics-certificate, mountPath: {{ include "endpoint-picker.metricsCertificatePath" . }}, readOnly: true}
{{- end }}
{{- if .Values.config }}
- {name: config, mountPath: {{ include "endpoint-picker.configPath" . }}, readOnly: true}
{{- end }}
{{- if eq (include "endpoint-picker.source" .) "file" }}
- {name: endpoints, mountPath: {{ include "endpoint-picker.endpointsPath" . }}, readOnly: true}
{{- end }}
{{- if .Values.recording.enabled }}
- {name: recording, mountPath: {{ include "endpoint-picker.recordingPath" . }}}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The seconds of all phases of a pod's end. */}}
{{- define "endpoint-picker.gracePeriod" -}}
{{- $seconds := 0 -}}
{{- range list .Values.drain.delay .Values.drain.timeout .Values.drain.margin -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $unit := regexFind "[hms]" . | get (dict "h" 3600 "m" 60 "s" 1) -}}
{{- $seconds = add $seconds (mul $unit (regexFind "[0-9]+" . | int)) -}}
{{- end -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* A name of at most 63 characters. */}}
{{- define "endpoint-picker.replicasService" -}}
{{- include "endpoint-picker.fullname" . | trunc 54 | trimSuffix "-" }}-replicas
{{- end -}}

{{- define "endpoint-picker.usesAPIServer" -}}
{{- ne (include "endpoint-picker.source" .) "file" -}}
{{- end -}}

{{- define "endpoint-picker.metricsScheme" -}}
{{- ternary "https" "http" (ne .Values.metrics.certificateSecret "") -}}
{{- end -}}

{{/* The rules of the NetworkPolicy beside those for metrics, probes, the API server and DNS. */}}
{{- define "endpoint-picker.ingressRules" -}}
- ports:
  - {port: grpc-ext-proc, protocol: TCP}
  from:
  {{- toYaml .Values.networkPolicy.gateways.from | nindent 2 }}
{{- if .Values.sharing.enabled }}
- ports:
  - {port: replicas, protocol: TCP}
  from:
  {{- include "endpoint-picker.ownPods" . | nindent 2 }}
{{- end }}
{{- if .Values.proxy.enabled }}
- ports:
  - {port: http-proxy, protocol: TCP}
  from:
  {{- toYaml .Values.networkPolicy.proxy.from | nindent 2 }}
{{- end }}
{{- if .Values.decisionAPI.enabled }}
- ports:
  - {port: decision, protocol: TCP}
  from:
  {{- toYaml .Values.networkPolicy.decisionAPI.from | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "endpoint-picker.ownPods" -}}
- podSelector:
    matchLabels:
      {{- include "endpoint-picker.selectorLabels" . | nindent 6 }}
{{- end -}}

{{- define "endpoint-picker.egressRules" -}}
{{- with .Values.networkPolicy.modelServers -}}
- ports:
  {{- range .ports }}
  - {port: {{ . }}, protocol: TCP}
  {{- else }}
  - {protocol: TCP}
  {{- end }}
  {{- with .to }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if .Values.sharing.enabled }}
- ports:
  - {port: {{ .Values.ports.replicas }}, protocol: TCP}
  to:
  {{- include "endpoint-picker.ownPods" . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "endpoint-picker.healthPorts" -}}
- {port: health, protocol: TCP}
- {port: grpc-health, protocol: TCP}
{{- end -}}

{{- define "endpoint-picker.poolNamespace" -}}
{{- default .Release.Namespace .Values.pool.namespace -}}
{{- end -}}

{{- define "endpoint-picker.configMapNamespace" -}}
{{- default (include "endpoint-picker.poolNamespace" .) .Values.configMap.namespace -}}
{{- end -}}

{{- define "endpoint-picker.certificatePath" -}}
/etc/endpoint-picker/tls
{{- end -}}

{{- define "endpoint-picker.clientCAPath" -}}
/etc/endpoint-picker/client-ca
{{- end -}}

{{- define "endpoint-picker.metricsCertificatePath" -}}
/etc/endpoint-picker/metrics-tls
{{- end -}}

{{- define "endpoint-picker.configPath" -}}
/etc/endpoint-picker/config
{{- end -}}

{{- define "endpoint-picker.configKey" -}}
config.yaml
{{- end -}}

{{- define "endpoint-picker.recordingPath" -}}
/var/lib/endpoint-picker
{{- end -}}

{{- define "endpoint-picker.endpointsPath" -}}
/etc/endpoint-picker/endpoints
{{- end -}}
