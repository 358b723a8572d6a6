
{{- define "edge-cache.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "edge-cache.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "edge-cache.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "edge-cache.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects. */}}
{{- define "edge-cache.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "edge-cache.fullname" .) -}}
{{- end -}}

{{- define "edge-cache.selectorLabels" -}}
app.kubernetes.io/name: {{ include "edge-cache.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "edge-cache.labels" -}}
{{- include "edge-cache.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has labels of its own: a list of the root context and the labels. */}}
{{- define "edge-cache.labelsWith" -}}
{{- $root := first . -}}
{{- $standard := include "edge-cache.selectorLabels" $root | fromYaml -}}
{{- $_ := set $standard "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $standard "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $standard "app.kubernetes.io/part-of" "fairlead" -}}
{{- $_ := set $standard "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- merge $standard (last .) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* The image: registry/repository:tag, with @digest instead of the tag or after it. */}}
{{- define "edge-cache.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not .Values.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
