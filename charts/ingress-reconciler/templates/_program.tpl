{{/* What this chart adds to the templates that the charts of Fairlead share. */}}

{{- define "ingress-reconciler.args" -}}
- --config-map={{ include "ingress-reconciler.configMapNamespace" . }}/{{ include "ingress-reconciler.configMapName" . }}
{{- if .Values.ome.configMap.name }}
- --ome-config-map={{ .Values.ome.configMap.namespace }}/{{ .Values.ome.configMap.name }}
{{- else }}
- --ome-config-map=
{{- end }}
- --kinds={{ join "," .Values.kinds }}
- --cluster-domain={{ .Values.clusterDomain }}
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

{{- define "ingress-reconciler.env" -}}
{{- with .Values.env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "ingress-reconciler.ports" -}}
- {name: metrics, containerPort: {{ .Values.ports.metrics }}}
- {name: health, containerPort: {{ .Values.ports.health }}}
{{- end -}}

{{- define "ingress-reconciler.volumes" -}}
{{- with .Values.extraVolumes }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "ingress-reconciler.volumeMounts" -}}
{{- with .Values.extraVolumeMounts }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "ingress-reconciler.gracePeriod" -}}
{{- .Values.terminationGracePeriodSeconds -}}
{{- end -}}

{{- define "ingress-reconciler.usesAPIServer" -}}
true
{{- end -}}

{{- define "ingress-reconciler.metricsScheme" -}}
http
{{- end -}}

{{/* The rules of the NetworkPolicy beside those for metrics, probes, the API server and DNS. */}}
{{- define "ingress-reconciler.ingressRules" -}}
{{- end -}}

{{- define "ingress-reconciler.egressRules" -}}
{{- end -}}

{{- define "ingress-reconciler.healthPorts" -}}
- {port: health, protocol: TCP}
{{- end -}}

{{/* The ConfigMap with the configuration: the one that the chart creates, or an existing one. */}}
{{- define "ingress-reconciler.configMapName" -}}
{{- default (include "ingress-reconciler.fullname" .) .Values.configMap.name -}}
{{- end -}}

{{- define "ingress-reconciler.configMapNamespace" -}}
{{- if .Values.configMap.name -}}
{{- default .Release.Namespace .Values.configMap.namespace -}}
{{- else -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end -}}
