package simulation

import (
	"compress/gzip"
	"os"
	"testing"
)

func TestTmp(t *testing.T) {
	f, _ := os.Open("/work/shared/traces/mooncake-synthetic.jsonl.gz")
	z, _ := gzip.NewReader(f)
	rec, err := ReadRecording(z)
	if err != nil {
		t.Fatal(err)
	}
	for name, rate := range map[string]float64{"32b-2xh100": 3.62, "7b-code-a100": 2.3} {
		file, _ := os.Open("testdata/servers/" + name + ".json")
		p, _ := ReadProfile(file)
		for seed := uint64(1); seed <= 3; seed++ {
			s := rec.Scenario("r", rate, p.Engines(8))
			s.Workload.bytes = p.BytesPerToken
			r := s.Trace(seed).Run(Picker(1, InTurn))
			t.Log(name, seed, r.HitRate(), r.TTFT().Mean, r.Total().Mean, r.Goodput())
		}
	}
}
