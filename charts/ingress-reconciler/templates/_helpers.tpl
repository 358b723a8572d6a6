{{- define "ingress-reconciler.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ingress-reconciler.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "ingress-reconciler.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ingress-reconciler.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ingress-reconciler.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ingress-reconciler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ingress-reconciler.labels" -}}
{{ include "ingress-reconciler.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fairlead
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ingress-reconciler.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ingress-reconciler.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects. */}}
{{- define "ingress-reconciler.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "ingress-reconciler.fullname" .) -}}
{{- end -}}

{{/* The image: repository:tag, repository@digest, or repository:tag@digest if the values set both. */}}
{{- define "ingress-reconciler.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not .Values.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
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
