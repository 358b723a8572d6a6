package brownout

// IsEmpty reports whether the Tracker knows of no slice.
func (k *Tracker) IsEmpty() bool { return len(k.slices) == 0 && len(k.services) == 0 }
