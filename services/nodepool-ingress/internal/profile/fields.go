package profile

import (
	"fmt"
	"maps"
	"slices"
)

// fieldSet lists the fields that a mapping of a custom manifest may have, and the fields of their values. Nil permits any value of the type
// that Kubernetes gives the field. A field that is not here is an error, so that nothing is ignored.
type fieldSet map[string]fieldSet

// documentFields are the kinds that a manifest may have, with their fields.
var documentFields = map[string]fieldSet{
	"networking.k8s.io/v1 IngressClass":               documentOf(fieldSet{"spec": {"controller": nil}}),
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": documentOf(fieldSet{"roleRef": nil}),
	"rbac.authorization.k8s.io/v1 RoleBinding":        documentOf(fieldSet{"roleRef": nil}),
	"v1 ConfigMap":       documentOf(fieldSet{"data": nil}),
	"apps/v1 Deployment": documentOf(fieldSet{"spec": {"template": {"spec": podFields}}}),
}

func documentOf(fields fieldSet) fieldSet {
	fields["apiVersion"], fields["kind"] = nil, nil
	return fields
}

// podFields omits fields that would let a manifest leave its pod, its pool or its ServiceAccount: volumes of nodes and of Secrets,
// namespaces of the node, other accounts, privileges, other nodes.
var podFields = fieldSet{
	"containers": containerFields, "initContainers": containerFields, "terminationGracePeriodSeconds": nil,
	"volumes":         {"name": nil, "emptyDir": {}, "configMap": {}}, // the ConfigMap is that of the manifest
	"securityContext": {"runAsUser": nil, "runAsGroup": nil, "runAsNonRoot": nil, "fsGroup": nil},
}

var containerFields = fieldSet{
	"name": nil, "image": nil, "command": nil, "args": nil, "resources": nil, "restartPolicy": nil,
	"ports":         {"name": nil, "containerPort": nil, "protocol": nil},
	"env":           {"name": nil, "value": nil, "valueFrom": {"fieldRef": nil}},
	"volumeMounts":  {"name": nil, "mountPath": nil, "subPath": nil, "readOnly": nil},
	"livenessProbe": probeFields, "readinessProbe": probeFields, "startupProbe": probeFields,
	"lifecycle": {"preStop": {"exec": nil, "sleep": nil}},
	"securityContext": {
		"runAsUser": nil, "runAsGroup": nil, "runAsNonRoot": nil, "readOnlyRootFilesystem": nil, "capabilities": {"add": nil, "drop": nil},
	},
}

// probeFields have no host: the kubelet would request pages of other machines.
var probeFields = fieldSet{
	"httpGet": {"path": nil, "port": nil, "scheme": nil}, "tcpSocket": {"port": nil}, "exec": nil, "initialDelaySeconds": nil,
	"timeoutSeconds": nil, "periodSeconds": nil, "successThreshold": nil, "failureThreshold": nil,
}

// checkValue returns an error for a field that is not in the set, in a mapping or in a list of mappings.
func (f fieldSet) checkValue(value any) error {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if err := f.checkValue(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below, known := f[name]
			if !known {
				return fmt.Errorf("unknown field %q", name)
			}
			if below == nil {
				continue
			}
			if err := below.checkValue(value[name]); err != nil {
				return err
			}
		}
	}
	return nil
}
