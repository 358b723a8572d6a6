{{/* What this chart adds to the templates that the charts of Fairlead share. */}}

{{/* Fails for values that contradict each other. */}}
{{- define "nodepool-ingress.check" -}}
{{- if and (has "ExternalIPs" .Values.exposures.allowed) (not .Values.exposures.externalIPRanges) -}}
{{- fail "exposures.allowed ExternalIPs: list the addresses that pools may have in exposures.externalIPRanges" -}}
{{- end -}}
{{- if and .Values.exposures.externalIPRanges (not (has "ExternalIPs" .Values.exposures.allowed)) -}}
{{- fail "exposures.externalIPRanges: it has an effect only with ExternalIPs in exposures.allowed" -}}
{{- end -}}
{{- if and .Values.exposures.hostPorts (not (or (has "HostPort" .Values.exposures.allowed) (has "HostNetwork" .Values.exposures.allowed))) -}}
{{- fail "exposures.hostPorts: it has an effect only with HostPort or HostNetwork in exposures.allowed" -}}
{{- end -}}
{{- if and (or .Values.exposures.loadBalancerClasses .Values.exposures.loadBalancerIPRanges) (not (has "LoadBalancer" .Values.exposures.allowed)) -}}
{{- fail "exposures.loadBalancerClasses and exposures.loadBalancerIPRanges: they have an effect only with LoadBalancer in exposures.allowed" -}}
{{- end -}}
{{- if not (has .Values.profiles.default .Values.profiles.enabled) -}}
{{- fail (printf "profiles.default %s: add it to profiles.enabled" .Values.profiles.default) -}}
{{- end -}}
{{- range $name, $image := .Values.profiles.images -}}
{{- if not (has $name $.Values.profiles.enabled) -}}
{{- fail (printf "profiles.images.%s: add the profile to profiles.enabled" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.profiles.customClusterRoles (not (has "custom" .Values.profiles.enabled)) -}}
{{- fail "profiles.customClusterRoles: it has an effect only with custom in profiles.enabled" -}}
{{- end -}}
{{- end -}}

{{- define "nodepool-ingress.args" -}}
{{- include "nodepool-ingress.check" . -}}
{{- include "nodepool-ingress.planArgs" . }}
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

{{/* The flags that the sub-command plan needs too. */}}
{{- define "nodepool-ingress.planArgs" -}}
- --namespace={{ .Release.Namespace }}
- --cluster-role-prefix={{ include "nodepool-ingress.clusterName" . }}
{{- with .Values.ingressClassPrefix }}
- --ingress-class-prefix={{ . }}
{{- end }}
- --pool-label-keys={{ join "," .Values.poolLabelKeys }}
- --default-profile={{ .Values.profiles.default }}
- --allowed-profiles={{ join "," .Values.profiles.enabled }}
{{- range $name, $image := .Values.profiles.images }}
- --images={{ $name }}={{ $image }}
{{- end }}
{{- with .Values.profiles.allowedImages }}
- --allowed-images={{ join "," . }}
{{- end }}
{{- with .Values.profiles.customClusterRoles }}
- --custom-cluster-roles={{ join "," . }}
{{- end }}
- --allowed-exposures={{ join "," (without .Values.exposures.allowed "ExternalIPs") }}
{{- with .Values.exposures.hostPorts }}
- --allowed-host-ports={{ join "," . }}
{{- end }}
{{- with .Values.exposures.externalIPRanges }}
- --external-ip-ranges={{ join "," . }}
{{- end }}
{{- with .Values.exposures.loadBalancerClasses }}
- --allowed-load-balancer-classes={{ join "," . }}
{{- end }}
{{- with .Values.exposures.loadBalancerIPRanges }}
- --load-balancer-ip-ranges={{ join "," . }}
{{- end }}
- --cache-image={{ include "nodepool-ingress.cacheImage" . }}
{{- with .Values.cache.upstreamServer }}
- --cache-upstream-server={{ . }}
{{- end }}
{{- with .Values.controllers.imagePullSecrets }}
- --image-pull-secrets={{ join "," . }}
{{- end }}
{{- with .Values.controllers.priorityClassName }}
- --priority-class={{ . }}
{{- end }}
{{- end -}}

{{/* The image of the edge-cache, in the form of the image of the program. */}}
{{- define "nodepool-ingress.cacheImage" -}}
{{- $tag := .Values.cache.image.tag -}}
{{- if not .Values.cache.image.digest -}}
{{- $tag = default .Chart.AppVersion $tag -}}
{{- end -}}
{{- with .Values.cache.image.registry }}{{ . }}/{{ end -}}
{{- .Values.cache.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.cache.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "nodepool-ingress.env" -}}
{{- with .Values.env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "nodepool-ingress.ports" -}}
- {name: metrics, containerPort: {{ .Values.ports.metrics }}}
- {name: health, containerPort: {{ .Values.ports.health }}}
{{- end -}}

{{- define "nodepool-ingress.volumes" -}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "nodepool-ingress.volumeMounts" -}}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "nodepool-ingress.gracePeriod" -}}
{{- .Values.terminationGracePeriodSeconds -}}
{{- end -}}

{{- define "nodepool-ingress.usesAPIServer" -}}
true
{{- end -}}

{{- define "nodepool-ingress.metricsScheme" -}}
http
{{- end -}}

{{/* The rules of the NetworkPolicy beside those for metrics, probes, the API server and DNS: none. */}}
{{- define "nodepool-ingress.ingressRules" -}}
{{- end -}}

{{- define "nodepool-ingress.egressRules" -}}
{{- end -}}

{{- define "nodepool-ingress.healthPorts" -}}
- {port: health, protocol: TCP}
{{- end -}}

{{/* The ClusterRoles that the program may bind: a list as YAML. */}}
{{- define "nodepool-ingress.bindable" -}}
{{- $prefix := include "nodepool-ingress.clusterName" . -}}
{{- $names := list (printf "%s:cache" $prefix) -}}
{{- range without .Values.profiles.enabled "custom" -}}
{{- $names = append $names (printf "%s:%s" $prefix .) -}}
{{- if ne . "traefik" -}}
{{- $names = append $names (printf "%s:%s-local" $prefix .) -}}
{{- end -}}
{{- end -}}
{{- concat $names .Values.profiles.customClusterRoles | uniq | toYaml -}}
{{- end -}}
