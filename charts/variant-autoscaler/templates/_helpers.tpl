{{- /* Generated from deploy/charts/templates/_helpers.tpl by make generate. DO NOT EDIT. */ -}}
{{- define "variant-autoscaler.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "variant-autoscaler.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "variant-autoscaler.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "variant-autoscaler.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects. */}}
{{- define "variant-autoscaler.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "variant-autoscaler.fullname" .) -}}
{{- end -}}

{{- define "variant-autoscaler.selectorLabels" -}}
app.kubernetes.io/name: {{ include "variant-autoscaler.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "variant-autoscaler.labels" -}}
{{- include "variant-autoscaler.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has labels of its own: a list of the root context and the labels. */}}
{{- define "variant-autoscaler.labelsWith" -}}
{{- $root := first . -}}
{{- $standard := include "variant-autoscaler.selectorLabels" $root | fromYaml -}}
{{- $_ := set $standard "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $standard "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $standard "app.kubernetes.io/part-of" "fairlead" -}}
{{- $_ := set $standard "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- merge $standard (last .) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* Pods have no label with a version: an upgrade of the chart alone does not replace them. */}}
{{- define "variant-autoscaler.podLabels" -}}
{{- merge (include "variant-autoscaler.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "variant-autoscaler.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "variant-autoscaler.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image: registry/repository:tag, with @digest instead of the tag or after it. */}}
{{- define "variant-autoscaler.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not .Values.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
