package liveaddress

import "net/netip"

// Pod is a pod of the node that runs.
type Pod struct {
	Namespace, Name string
	// Static means that the kubelet has the pod from a file or an URL. The API server knows such a pod by a mirror with the same name and
	// another UID.
	Static    bool
	Addresses []netip.Addr // the main one first
}
