package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func at(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 8000)
}

// endpoints parses "1:ready 2:finishing".
func endpoints(text string) []Endpoint {
	states := map[string]State{"ready": Ready, "finishing": Finishing, "terminating": Terminating, "notready": NotReady}
	var all []Endpoint
	for _, f := range strings.Fields(text) {
		var n int
		var state string
		if _, err := fmt.Sscanf(strings.ReplaceAll(f, ":", " "), "%d %s", &n, &state); err != nil {
			panic(err)
		}
		all = append(all, Endpoint{Address: at(n), State: states[state]})
	}
	return all
}

// backends parses "1 2:drain".
func backends(text string) []Backend {
	var all []Backend
	for _, f := range strings.Fields(text) {
		var n int
		name, flag, _ := strings.Cut(f, ":")
		_, _ = fmt.Sscan(name, &n)
		all = append(all, Backend{Address: at(n), Weight: 1, Drain: flag == "drain"})
	}
	return all
}

// format is the inverse of backends.
func format(all []Backend) string {
	var fields []string
	for _, b := range all {
		a := b.Address.Addr().As4()
		text := fmt.Sprint(int(a[2])<<8 | int(a[3]))
		if b.Drain {
			text += ":drain"
		}
		fields = append(fields, text)
	}
	return strings.Join(fields, " ")
}

// ago returns a mark of a backend that began to leave some time ago.
func ago(d time.Duration, change ...func(m *Mark)) Mark {
	m := Mark{Since: now.Add(-d)}
	for _, f := range change {
		f(&m)
	}
	return m
}

func terminating(m *Mark) { m.Terminating = true }
func gone(d time.Duration) func(m *Mark) {
	return func(m *Mark) { m.Gone = now.Add(-d) }
}

func TestBuild(t *testing.T) {
	t.Parallel()
	drain := Drain{Minimum: 10 * time.Second, Maximum: 10 * time.Minute}
	tests := []struct {
		name      string
		endpoints string
		current   string
		drain     Drain
		memory    Marks
		emptying  bool
		want      string
		next      time.Duration // 0: never
	}{
		{name: "a new endpoint is added", endpoints: "1:ready 2:ready", current: "1", want: "1 2"},
		{name: "an endpoint that is not ready is not added", endpoints: "1:ready 2:notready", current: "1", want: "1"},
		{
			name: "a ready endpoint stops draining", endpoints: "1:ready", current: "1:drain", memory: Marks{at(1): ago(time.Minute)},
			want: "1",
		},
		{
			name: "an endpoint that terminates drains", endpoints: "1:ready 2:finishing", current: "1 2", want: "1 2:drain",
			next: 10 * time.Minute,
		},
		{
			name: "one that terminates and does not serve drains", endpoints: "1:ready 2:terminating", current: "1 2", want: "1 2:drain",
			next: 10 * time.Minute,
		},
		{name: "one that terminates is not added", endpoints: "1:ready 2:finishing", current: "1", want: "1"},
		{
			name: "one that is no longer ready drains", endpoints: "1:ready 2:notready", current: "1 2", want: "1 2:drain",
			next: 10 * time.Minute,
		},
		{
			name: "the maximum ends a drain", endpoints: "1:ready 2:finishing", current: "1 2:drain",
			memory: Marks{at(2): ago(10*time.Minute, terminating)}, want: "1",
		},
		{
			name: "just before the maximum", endpoints: "1:ready 2:finishing", current: "1 2:drain",
			memory: Marks{at(2): ago(9*time.Minute, terminating)}, want: "1 2:drain", next: time.Minute,
		},
		{
			name: "a drained backend goes when its endpoint goes", endpoints: "1:ready", current: "1 2:drain",
			memory: Marks{at(2): ago(10*time.Second, terminating)}, want: "1",
		},
		{
			name: "not before the minimum", endpoints: "1:ready", current: "1 2:drain",
			memory: Marks{at(2): ago(4*time.Second, terminating)}, want: "1 2:drain", next: 6 * time.Second,
		},
		{name: "an endpoint that vanishes is held", endpoints: "1:ready", current: "1 2", want: "1 2:drain", next: VanishGracePeriod},
		{
			name: "for the whole hold", endpoints: "1:ready", current: "1 2:drain",
			memory: Marks{at(2): ago(20*time.Second, gone(20*time.Second))}, want: "1 2:drain", next: 10 * time.Second,
		},
		{
			name: "and no longer", endpoints: "1:ready", current: "1 2:drain",
			memory: Marks{at(2): ago(VanishGracePeriod, gone(VanishGracePeriod))}, want: "1",
		},
		{
			name: "it may come back", endpoints: "1:ready 2:ready", current: "1 2:drain",
			memory: Marks{at(2): ago(VanishGracePeriod, gone(VanishGracePeriod))}, want: "1 2",
		},
		{
			name: "not ready, then gone: the hold begins when it goes", endpoints: "1:ready", current: "1 2:drain",
			memory: Marks{at(2): ago(time.Minute)}, want: "1 2:drain", next: VanishGracePeriod,
		},
		{name: "all vanish: nothing else serves", current: "1 2:drain", want: "1 2:drain", next: VanishGracePeriod},
		{
			name: "all vanished for good", current: "1 2",
			memory: Marks{at(1): ago(VanishGracePeriod, gone(VanishGracePeriod)), at(2): ago(VanishGracePeriod, gone(VanishGracePeriod))},
			want:   "",
		},
		{
			name: "all terminate: the serving ones serve", endpoints: "1:finishing 2:finishing 3:terminating", current: "1 2 3",
			want: "1 2 3:drain", next: 10 * time.Minute,
		},
		{
			name: "they serve even after the maximum", endpoints: "1:finishing", current: "1",
			memory: Marks{at(1): ago(time.Hour, terminating)}, want: "1",
		},
		{name: "they are added, too", endpoints: "1:finishing", current: "", want: "1"},
		{
			name: "they drain as soon as another is ready", endpoints: "1:finishing 2:ready", current: "1",
			memory: Marks{at(1): ago(time.Minute, terminating)}, want: "1:drain 2", next: 9 * time.Minute,
		},
		{name: "none is ready", endpoints: "1:notready 2:notready", current: "1 2", want: "1:drain 2:drain", next: 10 * time.Minute},
		{
			name: "foreign backends are held, and go", endpoints: "1:ready", current: "7 8", want: "7:drain 8:drain 1",
			next: VanishGracePeriod,
		},
		{
			name: "without a drain, an endpoint that terminates goes at once", endpoints: "1:ready 2:finishing", current: "1 2",
			drain: Drain{Maximum: -1}, want: "1",
		},
		{name: "an empty Service and an empty set", want: ""},
		{
			name: "emptying drains for the minimum", endpoints: "1:ready", current: "1 2", emptying: true, want: "1:drain 2:drain",
			next: 10 * time.Second,
		},
		{
			name: "emptying ends", current: "1:drain", emptying: true,
			memory: Marks{at(1): ago(10*time.Second, terminating, gone(10*time.Second))}, want: "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := Input{
				Endpoints: endpoints(tt.endpoints), Current: backends(tt.current), Drain: drain, Emptying: tt.emptying, Marks: tt.memory,
				Now: now,
			}
			if tt.drain.Maximum < 0 {
				in.Drain = Drain{}
			}
			before := maps.Clone(tt.memory)
			target := Build(in)
			assert.Equal(t, tt.want, format(target.WantedBackends(in.Current, constant(1))))
			var next time.Duration
			if !target.Next.IsZero() {
				next = target.Next.Sub(now)
			}
			assert.Equal(t, tt.next, next)
			assert.Equal(t, before, tt.memory, "the input is not changed")
			assert.Equal(t, target, Build(in), "the same input gives the same target")
			in.Current, in.Marks = target.WantedBackends(in.Current, constant(1)), target.Marks
			assert.Equal(t, tt.want, format(Build(in).WantedBackends(in.Current, constant(1))), "a fixed point")
		})
	}
}

// occupants parses "2:embed/u9 2:embed/u9@": at another port than that of the backend.
func occupants(text string) map[netip.AddrPort][]Occupant {
	all := map[netip.AddrPort][]Occupant{}
	for _, f := range strings.Fields(text) {
		name, who, _ := strings.Cut(f, ":")
		who, _, otherPort := strings.Cut(who, "@")
		service, pod, _ := strings.Cut(who, "/")
		var n int
		_, _ = fmt.Sscan(name, &n)
		all[at(n)] = append(all[at(n)], Occupant{Service: service, Pod: pod, SamePort: !otherPort})
	}
	return all
}

// TestTakenAddresses follows a set whose addresses other Services get. Pods of the set's own endpoints are u1, u2 and so on.
func TestTakenAddresses(t *testing.T) {
	t.Parallel()
	type step struct {
		endpoints, occupants, want string
		pods                       string // "": of endpoints; otherwise that of all
		former                     string // a Service
	}
	tests := []struct {
		name, current string
		emptying      bool          // in the last step
		claimed       time.Duration // before the first step
		steps         []step
	}{
		{
			name: "nothing else serves, and another Service has it at once", current: "1 2",
			steps: []step{{endpoints: "1:ready 2:ready", want: "1 2"}, {occupants: "2:embed/u9", want: "1"}},
		},
		{
			name: "while it is held", current: "1 2",
			steps: []step{{endpoints: "1:ready 2:ready", want: "1 2"}, {want: "1 2"}, {occupants: "1:embed/u8 2:embed/u9", want: ""}},
		},
		{
			name: "others serve", current: "1 2",
			steps: []step{{endpoints: "1:ready 2:ready", want: "1 2"}, {endpoints: "1:ready", occupants: "2:embed/u9", want: "1"}},
		},
		{name: "gone after it was terminating", current: "1 2", steps: []step{
			{endpoints: "1:ready 2:finishing", want: "1 2:drain"}, {endpoints: "1:ready", want: "1 2:drain"},
			{endpoints: "1:ready", occupants: "2:embed/u9", want: "1"},
		}},
		{
			name: "terminating still, and its address has another pod", current: "1 2",
			steps: []step{{endpoints: "1:ready 2:terminating", occupants: "2:embed/u9", want: "1"}},
		},
		{
			name: "the last one that serves", current: "2",
			steps: []step{{endpoints: "2:finishing", want: "2"}, {endpoints: "2:finishing", occupants: "2:embed/u9", want: ""}},
		},
		{name: "not ready still", current: "1 2", steps: []step{{endpoints: "1:ready 2:notready", occupants: "2:embed/u9", want: "1"}}},
		{
			name: "a set that is being emptied", current: "1 2", emptying: true,
			steps: []step{{endpoints: "1:ready 2:ready", want: "1 2"}, {endpoints: "1:ready", occupants: "2:embed/u9", want: "1:drain"}},
		},
		{
			name: "pods without names", current: "2",
			steps: []step{{endpoints: "2:ready", pods: "-", want: "2"}, {occupants: "2:embed/", want: ""}},
		},
		{
			name: "pods without names, which may be two", current: "2",
			steps: []step{{endpoints: "2:ready", pods: "-", occupants: "2:embed/", want: "2"}, {occupants: "2:embed/", want: ""}},
		},
		{name: "at another port", current: "2", steps: []step{{endpoints: "2:ready", want: "2"}, {occupants: "2:embed/u9@", want: ""}}},
		{
			name: "a ready endpoint is its own", current: "2",
			steps: []step{{endpoints: "2:ready", occupants: "2:embed/u9", want: "2"}, {occupants: "2:embed/u9", want: ""}},
		},
		{name: "a new leader knows no pods", current: "2", steps: []step{{occupants: "2:embed/u2", want: ""}}},
		{
			name: "Services that share a pod", current: "2",
			steps: []step{{endpoints: "2:ready", occupants: "2:headless/u2", want: "2"}, {occupants: "2:headless/u2", want: "2"}},
		},
		{name: "then another pod has it", current: "2", steps: []step{
			{endpoints: "2:ready", occupants: "2:headless/u2", want: "2"}, {occupants: "2:headless/u2", want: "2"}, {want: "2"},
			{occupants: "2:headless/u9", want: ""},
		}},
		{name: "a Service that no longer shares the pod gets it again", current: "2", steps: []step{
			{endpoints: "2:ready", occupants: "2:headless/u2", want: "2"}, {endpoints: "2:ready", want: "2"},
			{occupants: "2:headless/u2", want: ""},
		}},
		{
			name: "the pod moves to a Service that did not have it", current: "2",
			steps: []step{{endpoints: "2:ready", occupants: "2:headless/u2", want: "2"}, {occupants: "2:headless/u2 2:embed/u2", want: ""}},
		},
		{name: "a shared pod terminates, and one Service publishes it as ready", current: "1 2", steps: []step{
			{endpoints: "1:ready 2:ready", occupants: "2:headless/u2", want: "1 2"},
			{endpoints: "1:ready 2:finishing", occupants: "2:headless/u2", want: "1 2:drain"},
		}},
		{
			name: "backends of the owner before", current: "2", claimed: 5 * time.Second,
			steps: []step{
				{endpoints: "1:ready", occupants: "2:embed/u9", want: "2:drain 1"},
				{endpoints: "1:ready", occupants: "2:embed/u9", want: "2:drain 1"},
			},
		},
		{
			name: "then another pod has one", current: "2", claimed: 5 * time.Second,
			steps: []step{
				{endpoints: "1:ready", occupants: "2:embed/u9", want: "2:drain 1"},
				{endpoints: "1:ready", occupants: "2:embed/u8", want: "1"},
			},
		},
		{
			name: "soon after the set was claimed", current: "2", claimed: 5 * time.Second,
			steps: []step{{endpoints: "2:ready", want: "2"}, {occupants: "2:embed/u9", want: ""}},
		},
		{name: "the set gets another Service", current: "1 2", steps: []step{
			{endpoints: "1:ready 2:ready", want: "1 2"},
			{endpoints: "3:ready", occupants: "1:chat/u1 2:chat/u2", former: "chat", want: "1:drain 2:drain 3"},
			{endpoints: "3:ready", occupants: "1:chat/u1 2:chat/u8", want: "1:drain 3"},
		}},
		{name: "the set gets another Service, which has no endpoints yet", current: "2", steps: []step{
			{endpoints: "2:ready", occupants: "2:headless/u2", want: "2"},
			{occupants: "2:headless/u2 2:chat/u2", former: "chat", want: "2"}, {occupants: "2:headless/u2 2:embed/u2", want: ""},
		}},
		{
			name: "two pods with the address of their node", current: "2",
			steps: []step{{endpoints: "2:ready", occupants: "2:exporter/u9@", want: "2"}, {occupants: "2:exporter/u9@", want: "2"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := Input{Current: backends(tt.current), Drain: Drain{Minimum: time.Minute, Maximum: time.Hour}, Now: now}
			for i, s := range tt.steps {
				in.Endpoints, in.Occupants, in.Former = endpoints(s.endpoints), occupants(s.occupants), strings.Fields(s.former)
				in.Emptying = tt.emptying && i == len(tt.steps)-1
				if tt.claimed > 0 {
					in.Claimed = now.Add(-tt.claimed)
				}
				for j := range in.Endpoints {
					if s.pods == "" {
						in.Endpoints[j].Pod = fmt.Sprintf("u%d", in.Endpoints[j].Address.Addr().As4()[3])
					}
				}
				target := Build(in)
				assert.Equal(t, target, Build(in), "the same input gives the same target")
				in.Current, in.Marks, in.Now = target.WantedBackends(in.Current, constant(1)), target.Marks, in.Now.Add(time.Second)
				assert.Equal(t, s.want, format(in.Current), "step %d", i)
			}
		})
	}
}

// TestMemory follows one backend from its endpoint's end to its removal, at one step a second.
func TestMemory(t *testing.T) {
	t.Parallel()
	in := Input{Current: backends("1 2"), Drain: Drain{Minimum: 20 * time.Second, Maximum: time.Minute}, Now: now}
	var states []string
	for second := range 40 {
		in.Now = now.Add(time.Duration(second) * time.Second)
		switch {
		case second < 5:
			in.Endpoints = endpoints("1:ready 2:ready")
		case second < 15:
			in.Endpoints = endpoints("1:ready 2:finishing")
		default:
			in.Endpoints = endpoints("1:ready")
		}
		target := Build(in)
		in.Current, in.Marks = target.WantedBackends(in.Current, constant(1)), target.Marks
		states = append(states, format(in.Current))
	}
	assert.Equal(t,
		slices.Concat(slices.Repeat([]string{"1 2"}, 5), slices.Repeat([]string{"1 2:drain"}, 20), slices.Repeat([]string{"1"}, 15)),
		states)
	assert.Len(t, in.Marks, 1, "a write that is in progress may add it again")
	in.Now = in.Now.Add(markRetention)
	assert.Empty(t, Build(in).Marks)
}

// TestAnEndpointThatEndsWhileItIsAdded is a backend only after its endpoint has come, terminated and gone.
func TestAnEndpointThatEndsWhileItIsAdded(t *testing.T) {
	t.Parallel()
	in := Input{Current: backends("1"), Endpoints: endpoints("1:ready 2:ready"), Drain: Drain{Maximum: time.Minute}, Now: now}
	for _, next := range []string{"1:ready 2:finishing", "1:ready"} {
		in.Marks = Build(in).Marks
		in.Endpoints, in.Now = endpoints(next), in.Now.Add(time.Second)
	}
	in.Marks = Build(in).Marks
	in.Current = backends("1 2")
	assert.Equal(t, "1", format(Build(in).WantedBackends(in.Current, constant(1))), "it is not held: it was seen terminating")
}

func TestBackendsKeepWhatOthersDecide(t *testing.T) {
	t.Parallel()
	current := []Backend{
		{Address: at(1), Weight: 3, MaxConnections: 300, Backup: true}, {Address: at(2), Weight: 5, Offline: true},
		{Address: at(3), Weight: 2, Drain: true},
	}
	target := Build(Input{
		Endpoints: endpoints("1:ready 2:finishing 3:ready 4:ready"), Current: current, Drain: Drain{Maximum: time.Minute}, Now: now,
	})
	assert.Equal(t, []Backend{
		{Address: at(1), Weight: 7, MaxConnections: 300, Backup: true}, {Address: at(2), Weight: 7, Offline: true, Drain: true},
		{Address: at(3), Weight: 7}, {Address: at(4), Weight: 7},
	}, target.WantedBackends(current, constant(7)))
}

func TestDiff(t *testing.T) {
	t.Parallel()
	changed := backends("3:drain")[0]
	got := Diff(backends("9 3 1 2"), append(backends("5 4 1"), changed))
	assert.Equal(t, Changes{Create: backends("4 5"), Update: []Backend{changed}, Delete: backends("2 9")}, got)
	assert.Equal(t, 5, got.Len())
	same := Diff(backends("1 2"), backends("2 1"))
	assert.Zero(t, same.Len())
}

func TestFit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		sets          []string // current backends | endpoints
		maximum       int
		limits        Limits
		others        int
		want          []string
		excess, early []int
		ofDraining    []time.Duration // ages, by address; nil: now
	}{
		{
			name: "everything fits", sets: []string{"1 2|1:ready 2:finishing 3:ready"}, limits: Limits{PerSet: 10, Total: 10},
			want: []string{"1 2:drain 3"},
		},
		{name: "draining backends make room", sets: []string{"1 2 3|1:finishing 2:finishing 3:ready 4:ready"},
			limits: Limits{PerSet: 3, Total: 10},
			want:   []string{"1:drain 3 4"}, early: []int{1}},
		{name: "some room is reserved", sets: []string{"1 2 3|1:finishing 2:finishing 3:ready"},
			limits: Limits{PerSet: 4, Total: 10, Reserved: 2},
			want:   []string{"1:drain 3"}, early: []int{1}},
		{name: "those that drain longest go first", sets: []string{"1 2 3|1:finishing 2:finishing 3:ready"},
			limits:     Limits{PerSet: 2, Total: 10},
			ofDraining: []time.Duration{2 * time.Minute, time.Minute}, want: []string{"2:drain 3"}, early: []int{1}},
		{name: "backends come before new endpoints", sets: []string{"5 6|1:ready 2:ready 5:ready 6:ready"},
			limits: Limits{PerSet: 3, Total: 10},
			want:   []string{"5 6 1"}, excess: []int{1}},
		{
			name: "the owner's limit", sets: []string{"|1:ready 2:ready 3:ready"}, maximum: 2, limits: Limits{PerSet: 10, Total: 10},
			want: []string{"1 2"}, excess: []int{1},
		},
		{name: "sets share the load balancer", sets: []string{
			"|1:ready 2:ready 3:ready 4:ready 5:ready", "|11:ready 12:ready 13:ready 14:ready", "|21:ready",
		},
			limits: Limits{PerSet: 10, Total: 7}, want: []string{"1 2 3", "11 12 13", "21"}, excess: []int{2, 1, 0}},
		{name: "a greedy set cannot push others out", sets: []string{
			"1 2 3 4 5 6|1:ready 2:ready 3:ready 4:ready 5:ready 6:ready 7:ready", "|11:ready 12:ready",
		},
			limits: Limits{PerSet: 10, Total: 6}, want: []string{"1 2 3 4", "11 12"}, excess: []int{3, 0}},
		{
			name: "sets of others take room", sets: []string{"|1:ready 2:ready 3:ready"}, limits: Limits{PerSet: 10, Total: 10}, others: 9,
			want: []string{"1"}, excess: []int{2},
		},
		{
			name: "all room is taken", sets: []string{"1|1:ready 2:finishing"}, limits: Limits{PerSet: 10, Total: 10}, others: 12,
			want: []string{""}, excess: []int{1},
		},
		{name: "sets share the room for draining", sets: []string{
			"1 2|1:finishing 2:ready", "11 12|11:finishing 12:ready",
		}, limits: Limits{PerSet: 10, Total: 3},
			ofDraining: []time.Duration{time.Minute}, want: []string{"2", "11:drain 12"}, early: []int{1, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			memory := Marks{}
			for i, age := range tt.ofDraining {
				memory[at(i+1)] = ago(age, terminating)
			}
			var demands []Demand
			var currents [][]Backend
			for _, text := range tt.sets {
				current, states, _ := strings.Cut(text, "|")
				in := Input{
					Endpoints: endpoints(states), Current: backends(current), Drain: Drain{Maximum: time.Hour}, Marks: memory, Now: now,
				}
				demands, currents = append(demands, Demand{Target: Build(in), Maximum: tt.maximum}), append(currents, in.Current)
			}
			FitLimits(demands, tt.limits, tt.others)
			for i, d := range demands {
				assert.Equal(t, tt.want[i], format(d.WantedBackends(currents[i], constant(1))))
				assert.Len(t, d.Excess, get(tt.excess, i))
				assert.Len(t, d.Early, get(tt.early, i))
			}
		})
	}
}

func get(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 0
}

// TestRollOutsNeverGetStuck rolls all pods of sets that fill their load balancer, with draining backends that never end by themselves.
func TestRollOutsNeverGetStuck(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		limits := Limits{PerSet: 20 + random.IntN(20), Total: 60, Reserved: random.IntN(8)}
		const sets, replicas = 3, 20
		next := 1
		pods := make([][]Endpoint, sets)
		current := make([][]Backend, sets)
		memory := make([]Marks, sets)
		for i := range pods {
			for range replicas {
				pods[i] = append(pods[i], Endpoint{Address: at(next), State: Ready})
				next++
			}
		}
		for step := range 60 {
			var demands []Demand
			for i := range pods {
				if step > 0 && step <= 20 { // one pod of each set is replaced
					pods[i][step-1].State = Finishing
					pods[i] = append(pods[i], Endpoint{Address: at(next), State: Ready})
					next++
				}
				demands = append(demands, Demand{Target: Build(Input{
					Endpoints: pods[i], Current: current[i], Drain: Drain{Maximum: 24 * time.Hour}, Marks: memory[i],
					Now: now.Add(time.Duration(step) * time.Second),
				})})
			}
			FitLimits(demands, limits, 0)
			total := 0
			for i, d := range demands {
				current[i], memory[i] = d.WantedBackends(current[i], constant(1)), d.Marks
				total += len(current[i])
				assert.LessOrEqual(t, len(current[i]), limits.PerSet)
				for _, e := range pods[i] {
					if e.State == Ready {
						assert.True(t, slices.ContainsFunc(current[i], func(b Backend) bool { return b.Address == e.Address && !b.Drain }),
							"seed %d, step %d: %s", seed, step, e.Address)
					}
				}
			}
			assert.LessOrEqual(t, total, limits.Total)
		}
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	tests := []struct {
		wants []int
		n     int
		want  []int
	}{
		{wants: []int{1, 2, 3}, n: 10, want: []int{1, 2, 3}},
		{wants: []int{5, 5}, n: 6, want: []int{3, 3}},
		{wants: []int{9, 1, 9}, n: 9, want: []int{4, 1, 4}},
		{wants: []int{3, 0}, n: 0, want: []int{0, 0}},
		{wants: nil, n: 5, want: []int{}},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, divideShares(tt.wants, tt.n))
	}
}

func BenchmarkPlan(b *testing.B) {
	const sets, size = 16, 512
	var inputs []Input
	for s := range sets {
		in := Input{Drain: Drain{Maximum: time.Hour}, Now: now, Marks: Marks{}}
		for i := range size {
			address := at(s*size + i)
			state := Ready
			if i%10 == 0 {
				state = Finishing
			}
			in.Endpoints = append(in.Endpoints, Endpoint{Address: address, State: state})
			in.Current = append(in.Current, Backend{Address: address, Weight: 1})
		}
		inputs = append(inputs, in)
	}
	limits := Limits{PerSet: size, Total: sets * size, Reserved: 16}
	b.ReportAllocs()
	for b.Loop() {
		demands := make([]Demand, 0, sets)
		for _, in := range inputs {
			demands = append(demands, Demand{Target: Build(in)})
		}
		FitLimits(demands, limits, 0)
		for i, d := range demands {
			changes := Diff(inputs[i].Current, d.WantedBackends(inputs[i].Current, constant(1)))
			if changes.Len() == 0 {
				b.Fatal("nothing drains")
			}
		}
	}
}

// constant returns the same weight for all backends.
func constant(weight int) func(netip.AddrPort) int {
	return func(netip.AddrPort) int { return weight }
}
