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
