// Package isolation tests that a change to one InferenceService never changes the destination of requests to another InferenceService.
// It runs the Reconciler on random clusters of honest and hostile services. After every write, it compares the answers of package
// semantics for all requests.
package isolation
