{{- /* Generated from deploy/charts/templates/_helpers.tpl by make generate. DO NOT EDIT. */ -}}
{{- define "nodepool-ingress.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "nodepool-ingress.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "nodepool-ingress.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "nodepool-ingress.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects. */}}
{{- define "nodepool-ingress.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "nodepool-ingress.fullname" .) -}}
{{- end -}}

{{- define "nodepool-ingress.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nodepool-ingress.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nodepool-ingress.labels" -}}
{{- include "nodepool-ingress.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has labels of its own: a list of the root context and the labels. */}}
{{- define "nodepool-ingress.labelsWith" -}}
{{- $root := first . -}}
{{- $standard := include "nodepool-ingress.selectorLabels" $root | fromYaml -}}
{{- $_ := set $standard "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $standard "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $standard "app.kubernetes.io/part-of" "fairlead" -}}
{{- $_ := set $standard "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- merge $standard (last .) $root.Values.commonLabels | toYaml -}}
{{- end -}}

{{/* Pods have no label with a version: an upgrade of the chart alone does not replace them. */}}
{{- define "nodepool-ingress.podLabels" -}}
{{- merge (include "nodepool-ingress.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "nodepool-ingress.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nodepool-ingress.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image: registry/repository:tag, with @digest instead of the tag or after it. */}}
{{- define "nodepool-ingress.image" -}}
{{- $tag := .Values.image.tag -}}
{{- if not .Values.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
