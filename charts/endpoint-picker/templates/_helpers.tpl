{{- /* Generated from deploy/charts/templates/_helpers.tpl by make generate. DO NOT EDIT. */ -}}
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

{{/* The name of cluster-scoped objects. */}}
{{- define "endpoint-picker.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "endpoint-picker.fullname" .) -}}
{{- end -}}

{{- define "endpoint-picker.selectorLabels" -}}
app.kubernetes.io/name: {{ include "endpoint-picker.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "endpoint-picker.labels" -}}
{{- include "endpoint-picker.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has labels of its own: a list of the root context and the labels. */}}
{{- define "endpoint-picker.labelsWith" -}}
{{- $root := first . -}}
{{- $standard := include "endpoint-picker.selectorLabels" $root | fromYaml -}}
{{- $_ := set $standard "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $standard "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $standard "app.kubernetes.io/part-of" "fairlead" -}}
{{- $_ := set $standard "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- merge $standard (last .) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* Pods have no label with a version: an upgrade of the chart alone does not replace them. */}}
{{- define "endpoint-picker.podLabels" -}}
{{- merge (include "endpoint-picker.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "endpoint-picker.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "endpoint-picker.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image: registry/repository:tag, with @digest instead of the tag or after it. */}}
{{- define "endpoint-picker.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not .Values.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
