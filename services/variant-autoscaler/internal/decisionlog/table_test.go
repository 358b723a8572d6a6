package decisionlog

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// chat is a model with two variants: one replica of each serves the 20 requests per second, 14.5 and 7.3.
func chat() *snapshot.Snapshot {
	variant := func(name string, cost int64, alpha float64) snapshot.Variant {
		return snapshot.Variant{
			Namespace: "ns", Name: name, Source: snapshot.VariantAutoscaling, Accelerator: strings.ToUpper(name), Cards: 1, Cost: cost * million, Now: 1, Ready: 1,
			Profile: &snapshot.Profile{Alpha: alpha, MaxBatch: 16},
		}
	}
	return &snapshot.Snapshot{
		Settings: snapshot.Settings{Split: "capacity"},
		Groups: []snapshot.Group{{
			Namespace: "ns", Pool: "p", Model: "meta/llama", Class: "premium", Priority: 1, Targets: snapshot.Targets{TTFT: 1000, ITL: 100},
			Load:     snapshot.Load{State: snapshot.Found, Rate: 20 * million, Input: 100, Output: 100},
			Variants: []snapshot.Variant{variant("big", 40, 10), variant("small", 23, 20)},
		}},
	}
}

func decide(t *testing.T, s *snapshot.Snapshot) *decision.Decision {
	t.Helper()
	d, err := decision.Decide(s)
	require.NoError(t, err)
	return d
}

func TestTable(t *testing.T) {
	t.Parallel()
	s := chat()
	var out strings.Builder
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	text := out.String()
	assert.Contains(t, text, "ns/meta/llama (pool p): class premium, priority 1, targets TTFT 1000ms, ITL 100ms; 20 requests/s of 100 + 100 tokens")
	assert.Contains(t, text, "the plan serves 100 %")
	assert.Regexp(t, `big +BIG +40 +1 +1 +1 +[\d.]+/s +`, text)
	assert.Contains(t, text, "cost per hour: plan 63 (no plan that serves as much costs less than 63), desired 63")

	s.Groups[0].Role = snapshot.Decode
	out.Reset()
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	assert.Contains(t, out.String(), "ns/meta/llama (pool p), decode: class premium")
}

// Names and messages come from objects of tenants.
func TestTableOfHostileText(t *testing.T) {
	t.Parallel()
	s := chat()
	s.Groups[0].Load = snapshot.Load{State: snapshot.Failed, Message: "no \x1b[2Janswer"}
	s.Groups[0].Variants[0].Accelerator = "\x1b]0;title\a\n"
	var out strings.Builder
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	assert.NotContains(t, out.String(), "\x1b")
	assert.NotContains(t, out.String(), "\a")
	assert.Contains(t, out.String(), "the load is not known (PrometheusError: no ?[2Janswer)")
}

func TestApply(t *testing.T) {
	t.Parallel()
	base := chat()
	tests := []struct {
		name string
		give Changes
		want string // of Compare
	}{
		{name: "price", give: Changes{Costs: []string{"ns/big=100"}}, want: `ns/big +1 -> 0`},
		{name: "price of all", give: Changes{Costs: []string{"*/*=1"}}, want: `cost per hour: plan 63 -> 2,`},
		{name: "minimum", give: Changes{Min: []string{"ns/b*=4"}}, want: `ns/big +1 -> 4`},
		{name: "maximum", give: Changes{Max: []string{"ns/big=1", "ns/small=0"}}, want: `plan 63,`},
		{name: "rate", give: Changes{Rates: []string{"ns/meta/llama=5"}}, want: `ns/big +1 -> 0`},
		{name: "target", give: Changes{ITL: []string{"ns/meta/*=15"}}, want: `ns/small +1 -> 0 +1 +[\d.]+/s -> [\d.]+/s +Optimal -> TargetsOutOfReach`},
		{name: "headroom", give: Changes{Settings: []func(s *snapshot.Settings){
			func(s *snapshot.Settings) { s.HeadroomPercent, s.Percentile = 900, 0 },
		}}, want: `ns/big +1 -> 1[0-9]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.False(t, tt.give.IsEmpty())
			changed, err := tt.give.Apply(base)
			require.NoError(t, err)
			var out strings.Builder
			require.NoError(t, PrintComparison(&out, changed, decide(t, base), decide(t, changed)))
			assert.Regexp(t, tt.want, out.String())
		})
	}
	prompts := chat()
	prompts.Groups[0].Targets.TTFTPerToken = 3
	changed, err := (&Changes{TTFT: []string{"ns/meta/llama=700"}}).Apply(prompts)
	require.NoError(t, err)
	assert.Equal(t, snapshot.Targets{TTFT: 700, ITL: prompts.Groups[0].Targets.ITL}, changed.Groups[0].Targets, "the whole target, without a part for tokens")
	assert.True(t, (&Changes{}).IsEmpty())
	assert.Equal(t, chat(), base, "a change changes a copy")
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ns/big":       "give NAME=VALUE",
		"ns/big=":      "give NAME=VALUE",
		"ns/big=x":     "give NAME=VALUE",
		"ns/big=-1":    "give NAME=VALUE",
		"ns/big=NaN":   "give NAME=VALUE",
		"ns/big=1e300": "from 0 to 10000000",
		"big=1":        "the name is not namespace/name",
		"ns/[=1":       "syntax error in pattern",
		"ns/bigger=1":  "the snapshot has nothing of this name",
		"other/big=1":  "the snapshot has nothing of this name",
	} {
		c := Changes{Costs: []string{text}}
		_, err := c.Apply(chat())
		require.ErrorContains(t, err, want, text)
	}
}

// TestOneMore: the table says what one more of each limit that binds would change.
func TestOneMore(t *testing.T) {
	t.Parallel()
	s := chat()
	s.Groups[0].Load.Rate = 50 * million
	s.Limits = []snapshot.Limit{{Name: "quota", Unit: snapshot.Cards, Accelerator: "BIG", Amount: 1}, {Name: "money", Unit: snapshot.Cost, Amount: 100 * million}}
	s.Nodes = []snapshot.NodeSet{{Name: "nodes with nvidia.com/gpu", Nodes: 1, Free: []snapshot.FreeNodes{{Cards: 2, Nodes: 1}}}}
	for i := range s.Groups[0].Variants {
		s.Groups[0].Variants[i].Pods = &snapshot.Pods{Cards: 2, Count: 1}
	}
	var out strings.Builder
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	assert.Contains(t, out.String(), "another card of quota: no change\n")
	assert.Contains(t, out.String(), "the cost of another replica of money: no change\n")
	assert.Regexp(t, `another place for a pod of 2 cards of nodes with nvidia.com/gpu for pods of 2 cards or more: the plan serves 30\.\d+ % -> 45\.\d+ % of ns/meta/llama \(pool p\), for a cost per hour of 40 -> 63`, out.String())

	s.Nodes[0].Elastic = true
	s.Limits, s.Quotas = nil, []snapshot.Quota{{Name: "quota of ClusterQueue q for nvidia.com/gpu of flavor f", Parent: -1, Nominal: 2}}
	for i := range s.Groups[0].Variants {
		s.Groups[0].Variants[i].Pods.Quotas = []int{0}
	}
	out.Reset()
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	assert.Regexp(t, `another 2 cards of quota of ClusterQueue q for nvidia.com/gpu of flavor f: the plan serves 30\.\d+ % -> \d+\.\d+ % of ns/meta/llama`, out.String())

	s.Nodes, s.Quotas, s.Limits = nil, nil, []snapshot.Limit{{Name: "quota", Unit: snapshot.Cards, Accelerator: "BIG", Amount: 1}}
	for i := range s.Groups[0].Variants {
		s.Groups[0].Variants[i].Pods = nil
	}
	out.Reset()
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	assert.Contains(t, out.String(), "another card of quota: cost per hour 155 -> ")
}

// TestTable_Zero: plan shows what wakes, and what a warm replica costs.
func TestTable_Zero(t *testing.T) {
	t.Parallel()
	s := chat()
	g := &s.Groups[0]
	requests := 0.0
	g.Load.Rate, g.Load.Queued = 0, 0
	g.Zero = snapshot.Zero{Enabled: true, Retention: time.Minute, Requests: &requests, Watched: true, WaitingCost: 100e6, WakeUps: 0.5}
	for i := range g.Variants {
		v := &g.Variants[i]
		v.Now, v.Ready, v.Previous, v.Held, v.Min, v.Start = 0, 0, 0, 0, 0, time.Minute
	}
	var out strings.Builder
	require.NoError(t, PrintTable(&out, s, decide(t, s)))
	assert.Regexp(t, `small starts first when a request waits`, out.String())
	assert.Regexp(t, `0.50 wake-ups/h of small, each of 1m0s, cost 0.8333/h, and a replica 23/h: the model may have none`, out.String())
}
