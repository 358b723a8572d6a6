package snapshot

import "time"

// Sample is what the replicas of a variant showed in one window, as the mean over those that are ready: package collect reads it from
// Prometheus, and package learn derives capacities from it. It is not a part of a Snapshot. Zero means not known, except for Rate, Running
// and Waiting.
type Sample struct {
	Time     time.Time
	Window   time.Duration
	Replicas int // that were scraped

	Rate   float64 // finished requests per second and replica
	Input  float64 // tokens of a request
	Output float64
	Cached float64 // part of the input tokens that a prefix cache had

	Running  float64 // requests in the batch of a replica
	Waiting  float64 // requests in its queue
	Prefill  float64 // time of a prefill without the wait, in milliseconds
	TTFT     float64 // in milliseconds, as is ITL
	ITL      float64
	KVUsage  float64 // part of the cache in use, 0 to 1
	KVTokens float64 // size of the cache of a replica

	Picker *PickerSample
}

// PickerSample is what the endpoint picker learned of the servers of a variant, as means over them.
type PickerSample struct {
	PrefillRate   float64 // tokens per second
	BatchCapacity float64 // requests
}
