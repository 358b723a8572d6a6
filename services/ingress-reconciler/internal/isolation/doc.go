// Package isolation tests that no change to one InferenceService changes where the requests of another one go. It runs the real
// Reconciler on random clusters of honest and hostile services, and asks package semantics for every request after every write.
package isolation
