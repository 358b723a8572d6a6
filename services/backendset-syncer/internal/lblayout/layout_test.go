package lblayout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// TestPoliciesOfOthers has policies without a listener and without rules of the program.
func TestPoliciesOfOthers(t *testing.T) {
	t.Parallel()
	own, adopted, foreign := plan.Rule{Name: "r000_a_b", Condition: "c", Set: "s"}, plan.Rule{Name: "p0000_x", Condition: "d", Set: "s"},
		plan.Rule{Name: "terraform", Condition: "e", Set: "s"}
	tests := []struct {
		name   string
		live   []plan.Rule // nil: the load balancer does not have the policy
		wanted []plan.Rule
		want   []plan.Rule // of the write, nil without one
	}{
		{name: "the program's rules go", live: []plan.Rule{foreign, own}, want: []plan.Rule{foreign}},
		{name: "adopted rules go", live: []plan.Rule{adopted, foreign, own}, want: []plan.Rule{foreign}},
		{name: "nothing is left to do", live: []plan.Rule{foreign}},
		{name: "the policy is gone"},
		{name: "others have removed their rules meanwhile", live: []plan.Rule{own}},
		{name: "rules come back", live: []plan.Rule{foreign}, wanted: []plan.Rule{own}, want: []plan.Rule{foreign, own}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			live := &Live{Policies: map[string]Policy{}, Sets: map[string]int{"s": 1}}
			if tt.live != nil {
				live.Policies["p"] = Policy{Name: "p", Rules: tt.live}
			}
			wanted := &Wanted{Policies: []Policy{{Name: "p", Rules: tt.wanted, Adopted: []string{adopted.Name}}}, MaxSets: 16}
			steps := NextSteps(live, wanted)
			if tt.want == nil {
				assert.Empty(t, steps)
				return
			}
			if behind := FindBehind(live, wanted); assert.Len(t, behind, 1) {
				assert.Equal(t, Ref{lbrecord.RoutingPolicy, "p"}, behind[0].Ref)
			}
			if assert.Len(t, steps, 1) {
				assert.Equal(t, Update, steps[0].Action)
				assert.Equal(t, tt.want, steps[0].Policy.Rules)
				live.Policies["p"] = *steps[0].Policy
			}
			assert.Empty(t, NextSteps(live, wanted), "one write is enough")
			assert.Empty(t, FindBehind(live, wanted))
		})
	}
}
