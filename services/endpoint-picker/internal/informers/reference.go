package informers

import (
	corev1 "k8s.io/api/core/v1"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
)

// HasPool reports whether the endpoints come from an InferencePool.
func (i *Informers) HasPool() bool { return i.pools != nil }

// PoolReference returns the reference for Events; without a UID if the pool is unknown.
func (i *Informers) PoolReference() corev1.ObjectReference {
	reference := corev1.ObjectReference{
		APIVersion: inferencev1.GroupVersion.String(), Kind: "InferencePool", Namespace: i.name.Namespace, Name: i.name.Name,
	}
	if object, ok := i.pools.Get(i.name); ok {
		if pool, ok := object.(*inferencev1.InferencePool); ok {
			reference.UID, reference.ResourceVersion = pool.UID, pool.ResourceVersion
		}
	}
	return reference
}
