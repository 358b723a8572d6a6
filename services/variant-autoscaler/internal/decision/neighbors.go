package decision

import (
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// poolKey identifies an InferencePool.
type poolKey struct{ namespace, name string }

// servedModels are the models of each InferencePool that have servers. Two of them suffice to find one that is not a given model.
func (d *decider) servedModels() map[poolKey][]string {
	served := map[poolKey][]string{}
	for g := range d.snapshot.Groups {
		in := &d.snapshot.Groups[g]
		if key := (poolKey{in.Namespace, in.Pool}); in.Pool != "" && len(served[key]) < 2 && !slices.Contains(served[key], in.Model) && d.isUp(g) {
			served[key] = append(served[key], in.Model)
		}
	}
	return served
}

// neighborOf returns another model with servers in the InferencePool of a group, empty if there is none. Pickers take all servers of a pool for
// equal: as long as one is ready, no request waits, and those for a model without servers get an error from a server of the other model.
func (d *decider) neighborOf(in *snapshot.Group) string {
	for _, model := range d.served[poolKey{in.Namespace, in.Pool}] {
		if model != in.Model {
			return model
		}
	}
	return ""
}
