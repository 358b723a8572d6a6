package settings

import "cmp"

// identity is what an entry is about. The key of the entry is only a label. Releases before v0.5 write modelID, later ones model_id.
type identity struct {
	Model     string `yaml:"modelID"`
	OldModel  string `yaml:"model_id"`
	Namespace string `yaml:"namespace"`
}

func (i identity) modelName() modelName { return modelName{i.Namespace, cmp.Or(i.Model, i.OldModel)} }

// modelKeys has the key of the entry that is in force for each model.
type modelKeys map[modelName]string

// claimModel reports whether the entry of a key is in force: it names a model, and no smaller key is about the same.
func (c modelKeys) claimModel(key string, name modelName, w *warnings) bool {
	if name.model == "" {
		w.addWarning(ReasonInvalid, key, "ignored: it names no model; set modelID")
		return false
	}
	if before, found := c[name]; found {
		w.addWarning(ReasonInvalid, key, "ignored: %q is about %s, too; remove one of them", before, name)
		return false
	}
	c[name] = key
	return true
}
