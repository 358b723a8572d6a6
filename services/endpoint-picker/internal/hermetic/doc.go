// Package hermetic tests the whole picker, as its command line starts it, on one machine and without a cluster: a small
// API server or a file names its endpoints, small model servers show it vLLM's pages, and a strict Envoy asks it over gRPC
// and refuses whatever Envoy would refuse. At the end of each test nothing may be counted any more: no stream, no request,
// no byte of a body.
package hermetic
