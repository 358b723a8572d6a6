{{- define "endpoint-picker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "endpoint-picker.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "endpoint-picker.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "endpoint-picker.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "endpoint-picker.selectorLabels" -}}
app.kubernetes.io/name: {{ include "endpoint-picker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "endpoint-picker.labels" -}}
{{ include "endpoint-picker.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fairlead
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "endpoint-picker.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "endpoint-picker.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "endpoint-picker.poolNamespace" -}}
{{- default .Release.Namespace .Values.pool.namespace -}}
{{- end -}}

{{- define "endpoint-picker.certificatePath" -}}
/etc/endpoint-picker/tls
{{- end -}}

{{- define "endpoint-picker.endpointsPath" -}}
/etc/endpoint-picker/endpoints
{{- end -}}

{{/* Where endpoints come from: pool, selector or file. Anything but one of them is an error. */}}
{{- define "endpoint-picker.source" -}}
{{- $given := list -}}
{{- if .Values.pool.name -}}{{- $given = append $given "pool" -}}{{- end -}}
{{- if .Values.endpoints.selector -}}{{- $given = append $given "selector" -}}{{- end -}}
{{- if .Values.endpoints.configMap -}}{{- $given = append $given "file" -}}{{- end -}}
{{- if ne (len $given) 1 -}}
{{- fail "set exactly one of pool.name, endpoints.selector and endpoints.configMap" -}}
{{- end -}}
{{- if and .Values.inferencePool.create (not .Values.pool.name) -}}
{{- fail "inferencePool.create: the pool wants a name; set pool.name, and no other source of endpoints" -}}
{{- end -}}
{{- first $given -}}
{{- end -}}

{{- define "endpoint-picker.metricsCertificatePath" -}}
/etc/endpoint-picker/metrics-tls
{{- end -}}

{{/* Of what has no namespace. */}}
{{- define "endpoint-picker.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "endpoint-picker.fullname" .) -}}
{{- end -}}

{{- define "endpoint-picker.configPath" -}}
/etc/endpoint-picker/config
{{- end -}}

{{- define "endpoint-picker.configKey" -}}
config.yaml
{{- end -}}

{{- define "endpoint-picker.configMapNamespace" -}}
{{- default (include "endpoint-picker.poolNamespace" .) .Values.configMap.namespace -}}
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

{{/* What is mounted: the volumes, and where. */}}
{{- define "endpoint-picker.volumes" -}}
{{- with .Values.gateway.certificateSecret }}
- {name: certificate, secret: {secretName: {{ . }}}}
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
{{- end -}}

{{- define "endpoint-picker.volumeMounts" -}}
{{- if .Values.gateway.certificateSecret }}
- {name: certificate, mountPath: {{ include "endpoint-picker.certificatePath" . }}, readOnly: true}
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
{{- end -}}
