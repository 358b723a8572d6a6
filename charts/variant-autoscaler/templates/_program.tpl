{{/* What this chart adds to the templates that the charts of Fairlead share. */}}

{{/* Fails for values that contradict each other. */}}
{{- define "variant-autoscaler.check" -}}
{{- with .Values.prometheus -}}
{{- $variables := list -}}
{{- range $.Values.env -}}{{- $variables = append $variables .name -}}{{- end -}}
{{- if not (or .url (not (include "variant-autoscaler.configures" $)) (has "PROMETHEUS_BASE_URL" $variables) $.Values.envFrom) -}}
{{- fail "set prometheus.url to the address of Prometheus, such as https://prometheus.monitoring.svc:9090" -}}
{{- end -}}
{{- if and (hasPrefix "http://" .url) (not .allowHTTP) -}}
{{- fail "prometheus.url: it is not encrypted; use https://, or set prometheus.allowHTTP: others on the network can then read queries, answers and the token" -}}
{{- end -}}
{{- if and .ca.secret .ca.configMap -}}
{{- fail "prometheus.ca.secret and prometheus.ca.configMap: set only one of them" -}}
{{- end -}}
{{- if and .token.secret .token.serviceAccount -}}
{{- fail "prometheus.token.secret and prometheus.token.serviceAccount: set only one of them" -}}
{{- end -}}
{{- end -}}
{{- with .Values.externalScaler -}}
{{- if and (not .enabled) (or .certificateSecret .clientCASecret .clientNames) -}}
{{- fail "externalScaler: set externalScaler.enabled, or its other values have no effect" -}}
{{- end -}}
{{- if and .clientCASecret (not .certificateSecret) -}}
{{- fail "externalScaler.clientCASecret: set externalScaler.certificateSecret too: without TLS there are no client certificates" -}}
{{- end -}}
{{- if and .clientNames (not .clientCASecret) -}}
{{- fail "externalScaler.clientNames: set externalScaler.clientCASecret to the authority of the client certificates" -}}
{{- end -}}
{{- end -}}
{{- with .Values.holds -}}
{{- if and (not .enabled) (or .caSecret .token) -}}
{{- fail "holds: set holds.enabled, or its other values have no effect" -}}
{{- end -}}
{{- if and .token (not .caSecret) -}}
{{- fail "holds.token: set holds.caSecret to the authority of the pickers' certificates: without it, anybody who may write a Service could get the token" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "variant-autoscaler.args" -}}
{{- include "variant-autoscaler.check" . -}}
{{- include "variant-autoscaler.decisionArgs" . }}
- --stabilization-window={{ .Values.plan.stabilizationWindow }}
- --forecast={{ .Values.plan.forecast }}
{{- with .Values.decisionLog }}
- {{ printf "--decision-log=%s" . | quote }}
{{- end }}
{{- with .Values.externalScaler }}
{{- if .enabled }}
- --scaler-bind-address=:{{ .port }}
{{- if .certificateSecret }}
- --scaler-certificates={{ include "variant-autoscaler.scalerPath" $ }}
{{- end }}
{{- if .clientCASecret }}
- --scaler-client-ca-file={{ include "variant-autoscaler.scalerClientCAPath" $ }}/ca.crt
{{- end }}
{{- range .clientNames }}
- {{ printf "--scaler-client-name=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
- --wake-hpa-targets={{ .Values.wakeHPATargets }}
- --follow-holds={{ .Values.holds.enabled }}
{{- if .Values.holds.caSecret }}
- --holds-ca-file={{ include "variant-autoscaler.holdsCAPath" . }}/ca.crt
{{- end }}
{{- if .Values.holds.token }}
- --holds-token-file={{ include "variant-autoscaler.holdsTokenPath" . }}/token
{{- end }}
- --leader-elect={{ .Values.leaderElection.enabled }}
- --leader-election-namespace={{ .Release.Namespace }}
- --leader-election-lease-duration={{ .Values.leaderElection.leaseDuration }}
- --leader-election-renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --leader-election-retry-period={{ .Values.leaderElection.retryPeriod }}
- --discovery-interval={{ .Values.discoveryInterval }}
- --kube-api-qps={{ .Values.kubeAPI.qps }}
- --kube-api-burst={{ .Values.kubeAPI.burst }}
- --metrics-bind-address=:{{ .Values.ports.metrics }}
- --health-probe-bind-address=:{{ .Values.ports.health }}
- --enable-pprof={{ .Values.pprof }}
- --log-level={{ .Values.logging.level }}
- --log-format={{ .Values.logging.format }}
{{- end -}}

{{/* The flags that the sub-command plan needs too. */}}
{{- define "variant-autoscaler.decisionArgs" -}}
- --config-namespace={{ include "variant-autoscaler.configNamespace" . }}
{{- $kinds := dict "optimization" "optimization" "acceleratorUnitCosts" "accelerators" "serviceClasses" "classes" "scaleToZero" "scale-to-zero" }}
{{- $kinds = merge $kinds (dict "saturation" "saturation" "limits" "limits") }}
{{- range $value, $name := .Values.configMaps }}
{{- with $name }}
- --config-map={{ get $kinds $value }}={{ . }}
{{- end }}
{{- end }}
{{- with .Values.controllerInstance }}
- {{ printf "--controller-instance=%s" . | quote }}
{{- end }}
- --actuator={{ .Values.actuator }}
- --metrics-window={{ .Values.prometheus.metricsWindow }}
- --allow-http-prometheus={{ .Values.prometheus.allowHTTP }}
- --split={{ .Values.plan.split }}
- --headroom-percent={{ .Values.plan.headroomPercent }}
- --saving-percent={{ .Values.plan.savingPercent }}
- --ttft-percentile={{ .Values.plan.ttftPercentile }}
- --trials={{ .Values.plan.trials }}
{{- if .Values.limiter.enabled }}
- --limiter
{{- end }}
{{- end -}}

{{/* Whether the limiter is on: by its value, or by the ConfigMap of the chart. */}}
{{- define "variant-autoscaler.limits" -}}
{{- $default := dict -}}
{{- if not .Values.configMaps.saturation -}}{{- $default = (index (default dict .Values.saturation) "default") | default dict -}}{{- end -}}
{{- if or .Values.limiter.enabled $default.enableLimiter }}true{{ end -}}
{{- end -}}

{{/* Whether the chart creates the ConfigMap with the configuration. */}}
{{- define "variant-autoscaler.configures" -}}
{{- if and .Values.optimization (not .Values.configMaps.optimization) }}true{{ end -}}
{{- end -}}

{{/* How the program reaches Prometheus: the keys of the ConfigMap, or the environment variables of the same names. */}}
{{- define "variant-autoscaler.prometheus" -}}
{{- $keys := dict -}}
{{- with .Values.prometheus -}}
{{- with .url -}}{{- $_ := set $keys "PROMETHEUS_BASE_URL" . -}}{{- end -}}
{{- with .serverName -}}{{- $_ := set $keys "PROMETHEUS_SERVER_NAME" . -}}{{- end -}}
{{- if .insecureSkipVerify -}}{{- $_ := set $keys "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY" "true" -}}{{- end -}}
{{- if or .ca.secret .ca.configMap -}}
{{- $_ := set $keys "PROMETHEUS_CA_CERT_PATH" (printf "%s/ca.crt" (include "variant-autoscaler.prometheusCAPath" $)) -}}
{{- end -}}
{{- if .token.secret -}}
{{- $_ := set $keys "PROMETHEUS_TOKEN_PATH" (printf "%s/token" (include "variant-autoscaler.prometheusTokenPath" $)) -}}
{{- else if .token.serviceAccount -}}
{{- $_ := set $keys "PROMETHEUS_TOKEN_PATH" "/var/run/secrets/kubernetes.io/serviceaccount/token" -}}
{{- end -}}
{{- if .clientCertificateSecret -}}
{{- $_ := set $keys "PROMETHEUS_CLIENT_CERT_PATH" (printf "%s/tls.crt" (include "variant-autoscaler.prometheusClientPath" $)) -}}
{{- $_ := set $keys "PROMETHEUS_CLIENT_KEY_PATH" (printf "%s/tls.key" (include "variant-autoscaler.prometheusClientPath" $)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $keys -}}
{{- end -}}

{{/* Without a ConfigMap of the chart, the environment has the address and the credentials of Prometheus: it wins over an existing one. */}}
{{- define "variant-autoscaler.env" -}}
{{- $env := list -}}
{{- if not (include "variant-autoscaler.configures" .) -}}
{{- range $name, $value := include "variant-autoscaler.prometheus" . | fromYaml -}}
{{- $env = append $env (dict "name" $name "value" $value) -}}
{{- end -}}
{{- end -}}
{{- with concat $env .Values.env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "variant-autoscaler.ports" -}}
- {name: metrics, containerPort: {{ .Values.ports.metrics }}}
- {name: health, containerPort: {{ .Values.ports.health }}}
{{- if .Values.externalScaler.enabled }}
- {name: scaler, containerPort: {{ .Values.externalScaler.port }}}
{{- end }}
{{- end -}}

{{- define "variant-autoscaler.volumes" -}}
{{- with .Values.prometheus }}
{{- with .ca.secret }}
- {name: prometheus-ca, secret: {secretName: {{ . }}, items: [{key: {{ $.Values.prometheus.ca.key | quote }}, path: ca.crt}]}}
{{- end }}
{{- with .ca.configMap }}
- {name: prometheus-ca, configMap: {name: {{ . }}, items: [{key: {{ $.Values.prometheus.ca.key | quote }}, path: ca.crt}]}}
{{- end }}
{{- with .token.secret }}
- {name: prometheus-token, secret: {secretName: {{ . }}, items: [{key: {{ $.Values.prometheus.token.key | quote }}, path: token}]}}
{{- end }}
{{- with .clientCertificateSecret }}
- {name: prometheus-client, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}
{{- with .Values.externalScaler.certificateSecret }}
- {name: scaler, secret: {secretName: {{ . }}}}
{{- end }}
{{- with .Values.externalScaler.clientCASecret }}
- {name: scaler-client-ca, secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- end }}
{{- with .Values.holds.caSecret }}
- {name: holds-ca, secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- end }}
{{- if .Values.holds.token }}
- {name: holds-token, secret: {secretName: {{ include "variant-autoscaler.holdsName" . }}, items: [{key: token, path: token}]}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "variant-autoscaler.volumeMounts" -}}
{{- with .Values.prometheus }}
{{- if or .ca.secret .ca.configMap }}
- {name: prometheus-ca, mountPath: {{ include "variant-autoscaler.prometheusCAPath" $ }}, readOnly: true}
{{- end }}
{{- if .token.secret }}
- {name: prometheus-token, mountPath: {{ include "variant-autoscaler.prometheusTokenPath" $ }}, readOnly: true}
{{- end }}
{{- if .clientCertificateSecret }}
- {name: prometheus-client, mountPath: {{ include "variant-autoscaler.prometheusClientPath" $ }}, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.externalScaler.certificateSecret }}
- {name: scaler, mountPath: {{ include "variant-autoscaler.scalerPath" . }}, readOnly: true}
{{- end }}
{{- if .Values.externalScaler.clientCASecret }}
- {name: scaler-client-ca, mountPath: {{ include "variant-autoscaler.scalerClientCAPath" . }}, readOnly: true}
{{- end }}
{{- if .Values.holds.caSecret }}
- {name: holds-ca, mountPath: {{ include "variant-autoscaler.holdsCAPath" . }}, readOnly: true}
{{- end }}
{{- if .Values.holds.token }}
- {name: holds-token, mountPath: {{ include "variant-autoscaler.holdsTokenPath" . }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "variant-autoscaler.gracePeriod" -}}
{{- .Values.terminationGracePeriodSeconds -}}
{{- end -}}

{{- define "variant-autoscaler.usesAPIServer" -}}
true
{{- end -}}

{{- define "variant-autoscaler.metricsScheme" -}}
http
{{- end -}}

{{/* The rules of the NetworkPolicy beside those for metrics, probes, the API server and DNS. */}}
{{- define "variant-autoscaler.ingressRules" -}}
{{- if .Values.externalScaler.enabled }}
- ports:
  - {port: scaler, protocol: TCP}
  {{- with .Values.networkPolicy.scaler.from }}
  from:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "variant-autoscaler.egressRules" -}}
- ports:
  {{- range .Values.networkPolicy.prometheus.ports }}
  - {port: {{ . }}, protocol: TCP}
  {{- else }}
  - {port: {{ include "variant-autoscaler.prometheusPort" . }}, protocol: TCP}
  {{- end }}
  {{- with .Values.networkPolicy.prometheus.to }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if .Values.holds.enabled }}
- ports:
  {{- range .Values.networkPolicy.pickers.ports }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
  {{- with .Values.networkPolicy.pickers.to }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The port in the address of Prometheus. */}}
{{- define "variant-autoscaler.prometheusPort" -}}
{{- if not .Values.prometheus.url -}}
{{- fail "networkPolicy.prometheus.ports: list the ports of Prometheus, as prometheus.url does not have its port" -}}
{{- end -}}
{{- $url := urlParse .Values.prometheus.url -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
{{- default (ternary "80" "443" (eq $url.scheme "http")) $port -}}
{{- end -}}

{{- define "variant-autoscaler.healthPorts" -}}
- {port: health, protocol: TCP}
{{- end -}}

{{- define "variant-autoscaler.configNamespace" -}}
{{- default .Release.Namespace .Values.configNamespace -}}
{{- end -}}

{{- define "variant-autoscaler.prometheusCAPath" -}}
/etc/fairlead/prometheus/ca
{{- end -}}

{{- define "variant-autoscaler.prometheusTokenPath" -}}
/etc/fairlead/prometheus/token
{{- end -}}

{{- define "variant-autoscaler.prometheusClientPath" -}}
/etc/fairlead/prometheus/client
{{- end -}}

{{- define "variant-autoscaler.scalerPath" -}}
/etc/fairlead/scaler/certificate
{{- end -}}

{{- define "variant-autoscaler.scalerClientCAPath" -}}
/etc/fairlead/scaler/client-ca
{{- end -}}

{{/* The ServiceAccount whose token pickers get, and its Secret. */}}
{{- define "variant-autoscaler.holdsName" -}}
{{ include "variant-autoscaler.fullname" . }}-holds
{{- end -}}

{{- define "variant-autoscaler.holdsCAPath" -}}
/etc/fairlead/holds/ca
{{- end -}}

{{- define "variant-autoscaler.holdsTokenPath" -}}
/etc/fairlead/holds/token
{{- end -}}
