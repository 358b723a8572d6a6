// Package replay plays a recording in virtual time against simulated model servers, and compares configurations of the picker.
//
// The pickers are the real ones, from the body of a request to the choice. The servers follow a profile, so times are those of the
// profile: the comparison between two configurations carries over to a fleet as far as the profile resembles it.
package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/simulator/internal/simulation"
)

// Limits on flags.
const (
	maxServers  = 1000
	maxReplicas = 100
	// maxMemory limits the memory of one run.
	maxMemory = 8 << 30
	// maxProfile is the maximum size of a profile.
	maxProfile = 1 << 20
)

// Options are the flags.
type Options struct {
	Recording string
	Pool      string // of the recording; empty if it has one
	Config    string // file with another configuration
	Profile   string // file with a profile of servers
	Servers   int    // 0: as many as the recording had
	Replicas  int    // of the picker
	Load      float64
	Rate      float64 // requests per second; both 0: as recorded
	Requests  int     // the first ones; 0: all
	Seed      uint64
}

// DefaultOptions returns the options without flags.
func DefaultOptions() Options { return Options{Replicas: 1, Seed: 1} }

// Validate returns all problems with their fixes.
func (o *Options) Validate() error {
	var problems []error
	for _, rule := range []struct {
		broken bool
		fix    string
	}{
		{o.Recording == "", "--recording is missing: give the file of a recording"},
		{o.Servers < 0 || o.Servers > maxServers,
			fmt.Sprintf("--servers %d is out of range: give 1 to %d, or 0 for the number in the recording",
				o.Servers, maxServers)},
		{o.Replicas < 1 || o.Replicas > maxReplicas, fmt.Sprintf("--replicas %d is out of range: give 1 to %d", o.Replicas, maxReplicas)},
		{o.Requests < 0, fmt.Sprintf("--requests %d is negative: give 0 for all", o.Requests)},
		// These conditions are true for NaN, too.
		{!(o.Load >= 0 && o.Load <= 2), fmt.Sprintf("--load %v is out of range: give a number such as 0.7, at most 2", o.Load)},
		{!(o.Rate >= 0 && o.Rate <= 1e6), fmt.Sprintf("--rate %v is out of range: give requests per second", o.Rate)},
		{o.Load > 0 && o.Rate > 0, "only one of --load and --rate can be given: leave the other out"},
	} {
		if rule.broken {
			problems = append(problems, errors.New(rule.fix))
		}
	}
	return errors.Join(problems...)
}

// Run plays the recording until it ends or ctx does. It writes the comparison to out, and remarks to log.
func Run(ctx context.Context, o Options, out, log io.Writer) error {
	load, err := o.readConfig(log)
	if err != nil {
		return err
	}
	profile, err := o.readProfile()
	if err != nil {
		return err
	}
	played, err := o.readRecording(log)
	if err != nil {
		return err
	}
	scenario, err := o.newScenario(ctx, played, profile)
	if err != nil {
		return err
	}
	t := newTable(out)
	t.printHeader(played, profile, scenario)
	if trace := scenario.Trace(o.Seed); trace.TooLong > 0 {
		fmt.Fprintf(log, "%d requests are left out, because a server has no memory for their prompt and answer\n", trace.TooLong)
	}
	t.addRecorded(played.requests)
	if err := o.runAll(ctx, scenario, load, t); err != nil {
		return err
	}
	return t.printTable()
}

// loader returns a new copy of a configuration.
type loader = func(o pluginconfig.Options) *pluginconfig.Config

func (o *Options) runAll(ctx context.Context, s simulation.Scenario, load loader, t *table) error {
	policies := []simulation.Policy{simulation.ConfiguredPicker("picker, default", o.Replicas, pluginconfig.Default)}
	if load != nil {
		policies = append(policies, simulation.ConfiguredPicker("picker, "+filepath.Base(o.Config), o.Replicas, load))
	}
	trace := s.Trace(o.Seed)
	for _, p := range append(policies, simulation.Greedy(), simulation.LMetric(), simulation.RoundRobin()) {
		result := trace.RunContext(ctx, p)
		if ctx.Err() != nil {
			return fmt.Errorf("replay: %w", ctx.Err())
		}
		t.addSimulated(p.Name, &result)
	}
	return nil
}

// readConfig reads the other configuration; nil if none is given.
func (o *Options) readConfig(log io.Writer) (loader, error) {
	if o.Config == "" {
		return nil, nil
	}
	text, err := readFile(o.Config, pluginconfig.MaxBytes+1)
	if err != nil {
		return nil, fmt.Errorf("read --config: %w", err)
	}
	first, err := pluginconfig.Load(text, simulation.PluginOptions())
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", o.Config, err)
	}
	for _, w := range first.Warnings {
		fmt.Fprintf(log, "%s: %s\n", o.Config, w)
	}
	return func(options pluginconfig.Options) *pluginconfig.Config {
		c, err := pluginconfig.Load(text, options)
		if err != nil {
			panic(err) // unreachable: the same text was valid
		}
		return c
	}, nil
}

func (o *Options) readProfile() (*simulation.Profile, error) {
	text := simulation.UsualProfile
	if o.Profile != "" {
		var err error
		if text, err = readFile(o.Profile, maxProfile); err != nil {
			return nil, fmt.Errorf("read --profile: %w", err)
		}
	}
	p, err := simulation.ReadProfile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("--profile %s: %w", o.Profile, err)
	}
	return p, nil
}

func readFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened only for reading
	return io.ReadAll(io.LimitReader(file, most))
}

// playableRecording is what a recording contains that can be played.
type playableRecording struct {
	*simulation.Recording

	requests []recorder.RecordedRequest
}

func (o *Options) readRecording(log io.Writer) (*playableRecording, error) {
	file, err := os.Open(o.Recording)
	if err != nil {
		return nil, fmt.Errorf("read --recording: %w", err)
	}
	defer func() { _ = file.Close() }() // opened only for reading
	requests, err := simulation.ReadRecording(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Recording, err)
	}
	if requests, err = o.filterPool(requests); err != nil {
		return nil, err
	}
	if o.Requests > 0 {
		requests = requests[:min(len(requests), o.Requests)]
	}
	all := len(requests)
	requests = slices.DeleteFunc(requests, func(r recorder.RecordedRequest) bool { return r.Status >= http.StatusBadRequest })
	if n := all - len(requests); n > 0 {
		fmt.Fprintf(log, "%d requests are left out, because their answers were errors\n", n)
	}
	playable, err := simulation.NewRecording(requests)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Recording, err)
	}
	return &playableRecording{Recording: playable, requests: requests}, nil
}

// filterPool returns the requests of the chosen pool.
func (o *Options) filterPool(requests []recorder.RecordedRequest) ([]recorder.RecordedRequest, error) {
	const mostNamed = 20
	pools := map[string]bool{}
	for i := range requests {
		pools[requests[i].Pool] = true
	}
	names := make([]string, 0, len(pools))
	for name := range pools {
		names = append(names, fmt.Sprintf("%.100q", name))
	}
	slices.Sort(names)
	switch named := strings.Join(names[:min(len(names), mostNamed)], ", "); {
	case o.Pool == "" && len(pools) > 1:
		return nil, fmt.Errorf("%s has requests of several pools: choose one with --pool: %s", o.Recording, named)
	case o.Pool == "":
		return requests, nil
	case !pools[o.Pool]:
		return nil, fmt.Errorf("%s has no requests of --pool %q: it has %s", o.Recording, o.Pool, named)
	}
	return slices.DeleteFunc(requests, func(r recorder.RecordedRequest) bool { return r.Pool != o.Pool }), nil
}

// newScenario returns the requests on servers at the chosen rate.
func (o *Options) newScenario(ctx context.Context, p *playableRecording, profile *simulation.Profile) (simulation.Scenario, error) {
	n := o.Servers
	if n == 0 {
		n = p.medianServers()
	}
	if n == 0 {
		return simulation.Scenario{}, fmt.Errorf("%s does not contain the number of servers: give --servers", o.Recording)
	}
	engines := profile.Engines(min(n, maxServers))
	at := func(perSecond float64) simulation.Scenario {
		return p.Scenario("replay", perSecond, engines).WithBytesPerToken(profile.BytesPerToken)
	}
	rate := p.Rate()
	if o.Rate > 0 {
		rate = o.Rate
	}
	s := at(rate)
	trace := s.Trace(o.Seed)
	switch {
	case trace.Requests() == 0:
		return s, errors.New("a server has no memory for any of the requests: give a profile with more kv_blocks")
	case trace.Memory() > maxMemory:
		return s, fmt.Errorf("the simulation needs %d GiB of memory: play fewer --requests, or use fewer --servers", trace.Memory()>>30)
	case o.Load == 0:
		return s, nil
	}
	s, err := simulation.AtLoad(ctx, o.Load, o.Seed, at)
	if err != nil {
		return s, fmt.Errorf("find the rate of --load %v: %w", o.Load, err)
	}
	return s, nil
}

// medianServers returns the median of the numbers of servers of the pool, 0 if no request has one.
func (p *playableRecording) medianServers() int {
	var numbers []int
	for i := range p.requests {
		if n := p.requests[i].Endpoints; n > 0 {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return 0
	}
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}
