// Package discovery finds the endpoints of pools: from the pods of a cluster (PodSource, podendpoints.go), from a file (FileSource),
// or from URLs (ServerSource).
//
// A Namespace watches the objects that the picker reads from a cluster: pods, the InferencePools that select them, and
// the rules for requests (see Rules).
//
// It watches the pods of the whole namespace and matches them itself, instead of sending a selector to the API server: the
// pool's selector may change at any time. A watch with the selector would then have to be replaced, with an old and a new
// set of pods in between. Two measures limit the cost of other pods: the transform keeps only a few fields, and the handler
// ignores events that change none of them. Pools in one namespace share its caches.
//
// The kinds may be missing: then pools or rules do not exist until the kinds appear. With a fixed selection there is no
// InferencePool, and the Namespace does not use its API.
package discovery
