package decision

import (
	"slices"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// servedModels are the models of each InferencePool that have servers. Two of them suffice to find one that is not a given model.
func (d *decider) servedModels() map[snapshot.PoolKey][]string {
	served := map[snapshot.PoolKey][]string{}
	for g := range d.snapshot.Groups {
		in := &d.snapshot.Groups[g]
		if key := in.ModelKey().PoolKey; in.Pool != "" && len(served[key]) < 2 && !slices.Contains(served[key], in.Model) && d.isUp(g) {
			served[key] = append(served[key], in.Model)
		}
	}
	return served
}

// neighborOf returns another model with servers in the InferencePool of a group, empty if there is none. Pickers take all servers of a pool
// for equal: as long as one is ready, no request waits, and those for a model without servers get an error from a server of the other
// model.
func (d *decider) neighborOf(in *snapshot.Group) string {
	for _, model := range d.served[in.ModelKey().PoolKey] {
		if model != in.Model {
			return model
		}
	}
	return ""
}
