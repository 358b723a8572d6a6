package learn

import (
	"fairlead.dev/pkg/steptime"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// worlds are the servers, requests and targets that the tests learn. The true capacities come from world.capacity.
func worlds() []world {
	realistic := steptime.Realistic()
	overlap := realistic
	overlap.Overlap = true
	p90 := func(ttft, itl float64) queueing.Targets {
		return queueing.Targets{TTFT: ttft, ITL: itl, Percentile: 90}
	}
	a100 := queueing.Profile{Alpha: 20.58, Beta: 0.41, Gamma: 5.2, Delta: 0.1, MaxBatch: 4}
	h100 := queueing.Profile{Alpha: 6.973, Beta: 0.027, Gamma: 14.825, Delta: 0.001364, MaxBatch: 64}
	return []world{
		{"long answers, ITL binds", modelserver.NewStepServers(realistic, 256, 600_000, 1), sizes{4000, 1000, 0.3, 0}, p90(3000, 60), 600_000,
			1.675, false},
		{"long answers, KV cache binds", modelserver.NewStepServers(realistic, 256, 65_536, 1), sizes{4000, 1000, 0.3, 0}, p90(3000, 100),
			65_536, 0.8, false},
		{"short answers, TTFT binds", modelserver.NewStepServers(realistic, 256, 400_000, 1), sizes{3000, 50, 0.5, 0}, p90(600, 100), 400_000,
			4.325, false},
		{"chat, ITL binds", modelserver.NewStepServers(realistic, 256, 400_000, 1), sizes{500, 250, 1, 0}, p90(1000, 24), 400_000, 10.9, false},
		{"chat, slots bind", modelserver.NewStepServers(realistic, 32, 400_000, 1), sizes{300, 200, 0.5, 0}, p90(1000, 100), 400_000, 11, true},
		{"chat with cached prefixes", modelserver.NewStepServers(realistic, 256, 400_000, 1), sizes{2000, 200, 0.5, 0.7}, p90(500, 30), 400_000,
			10.5, false},
		{"plain linear steps", modelserver.NewStepServers(steptime.Linear(), 128, 400_000, 1), sizes{1000, 200, 0.5, 0}, p90(500, 30), 400_000,
			11.1, false},
		{"overlap", modelserver.NewStepServers(overlap, 256, 400_000, 1), sizes{1000, 200, 0.5, 0}, p90(500, 30), 400_000, 12.1, false},
		{"queueing A100, mean", modelserver.NewLinearServers(a100), sizes{128, 128, 0.3, 0}, queueing.Targets{TTFT: 500, ITL: 24}, 0, 0.969,
			true},
		{"queueing A100, tighter ITL", modelserver.NewLinearServers(a100), sizes{128, 128, 0.3, 0}, queueing.Targets{TTFT: 500, ITL: 22}, 0,
			0.969, true},
		{"queueing H100", modelserver.NewLinearServers(h100), sizes{128, 128, 0.3, 0}, p90(500, 8), 0, 35.6, false},
	}
}
