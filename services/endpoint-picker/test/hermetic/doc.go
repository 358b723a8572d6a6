// Package hermetic tests the whole picker through its command line, on one machine and without a cluster. A small API server
// or a file provides its endpoints, small model servers have vLLM's pages, and a strict Envoy sends requests over gRPC and
// refuses whatever Envoy would refuse. At the end of each test all counters must be zero: streams, requests, and bytes of
// bodies.
package hermetic
