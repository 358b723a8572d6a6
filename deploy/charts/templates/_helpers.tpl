{{- define "CHART.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "CHART.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "CHART.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "CHART.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects. */}}
{{- define "CHART.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "CHART.fullname" .) -}}
{{- end -}}

{{- define "CHART.selectorLabels" -}}
app.kubernetes.io/name: {{ include "CHART.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "CHART.labels" -}}
{{- include "CHART.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has labels of its own: a list of the root context and the labels. */}}
{{- define "CHART.labelsWith" -}}
{{- $root := first . -}}
{{- $standard := include "CHART.selectorLabels" $root | fromYaml -}}
{{- $_ := set $standard "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $standard "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $standard "app.kubernetes.io/part-of" "fairlead" -}}
{{- $_ := set $standard "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- merge $standard (last .) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* Pods have no label with a version: an upgrade of the chart alone does not replace them. */}}
{{- define "CHART.podLabels" -}}
{{- merge (include "CHART.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "CHART.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "CHART.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image: registry/repository:tag, with @digest instead of the tag or after it. */}}
{{- define "CHART.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not .Values.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
