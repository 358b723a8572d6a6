package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/dryrun"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/app"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/decisionlog"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// planOptions are the flags of plan.
type planOptions struct {
	*config.Config

	snapshot string
	cluster  bool
	output   string
	changes  decisionlog.Changes
}

func newPlan(in io.Reader, out, log io.Writer) *cobra.Command {
	o := &planOptions{Config: config.Default(os.Getenv), output: "table"}
	cmd := &cobra.Command{
		Use:   "plan {--snapshot FILE | --cluster}",
		Short: "Print a decision with its reasons, and what other prices, bounds or targets would change",
		Long: "Print a decision with its reasons, and what other prices, bounds or targets would change. plan writes nothing.\n" +
			"--snapshot reads the last record of a decision log, or a snapshot. --cluster reads the cluster and Prometheus once: without the\n" +
			"memory of the running program, no replicas are held, and capacities are measured from one sample.",
		Example: "  variant-autoscaler plan --cluster --output=json > now.json\n" +
			"  variant-autoscaler plan --snapshot=now.json --cost='chat/*-h100=12.5' --ttft='chat/llama=300'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.runPlan(cmd.Context(), in, out, log) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.snapshot, "snapshot", "", "File with a decision log or a snapshot. - is standard input.")
	fs.BoolVar(&o.cluster, "cluster", false, "Read the cluster and Prometheus.")
	fs.StringVarP(&o.output, "output", "o", o.output, "table, or json: the snapshot with its decision.")
	fs.StringArrayVar(&o.changes.Costs, "cost", nil, "What if replicas cost this per hour: namespace/variant=COST. * in a name is any text.")
	fs.StringArrayVar(&o.changes.Min, "min", nil, "What if at least so many replicas are required: namespace/variant=N.")
	fs.StringArrayVar(&o.changes.Max, "max", nil, "What if at most so many replicas are allowed, 0 for any number: namespace/variant=N.")
	fs.StringArrayVar(&o.changes.TTFT, "ttft", nil, "What if the target of the time to first token is this: namespace/model=MILLISECONDS. 0: none.")
	fs.StringArrayVar(&o.changes.ITL, "itl", nil, "What if the target of the time between tokens is this: namespace/model=MILLISECONDS. 0: none.")
	fs.StringArrayVar(&o.changes.Rates, "rate", nil, "What if requests come at this rate: namespace/model=REQUESTS_PER_SECOND.")
	fs.BoolVar(&o.changes.IgnoreStabilizing, "ignore-stabilization", false, "What if no replicas are held, and any saving suffices.")
	o.Kube.AddFlags(fs)
	o.AddDecisionFlags(fs)
	cmd.MarkFlagsMutuallyExclusive("snapshot", "cluster")
	cmd.MarkFlagsOneRequired("snapshot", "cluster")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { // of a snapshot, the flags are questions
		for flag, change := range map[string]func(s *snapshot.Settings){
			"headroom-percent": func(s *snapshot.Settings) { s.HeadroomPercent = o.Plan.HeadroomPercent },
			"saving-percent":   func(s *snapshot.Settings) { s.SavingPercent = o.Plan.SavingPercent },
			"ttft-percentile":  func(s *snapshot.Settings) { s.Percentile = o.Plan.Percentile },
			"split":            func(s *snapshot.Settings) { s.Split = o.Plan.Split },
		} {
			if o.snapshot != "" && cmd.Flags().Changed(flag) {
				o.changes.Settings = append(o.changes.Settings, change)
			}
		}
	}
	return cmd
}

func (o *planOptions) runPlan(ctx context.Context, in io.Reader, out, log io.Writer) error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("flags: --output %q is not one of table, json", o.output)
	}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	read := func() (*snapshot.Snapshot, error) { return o.readFile(in) }
	if o.cluster {
		read = func() (*snapshot.Snapshot, error) { return o.readCluster(ctx, log) }
	}
	s, err := read()
	if err != nil {
		return err
	}
	before, err := decision.Decide(s)
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	if o.changes.IsEmpty() {
		return o.printDecision(out, s, before)
	}
	changed, err := o.changes.Apply(s)
	if err != nil {
		return err
	}
	after, err := decision.Decide(changed)
	if err != nil {
		return fmt.Errorf("decide with the changes: %w", err)
	}
	if err := o.printDecision(out, changed, after); err != nil || o.output == "json" {
		return err
	}
	fmt.Fprintln(out, "\nchanges against the snapshot:")
	return decisionlog.PrintComparison(out, s, before, after)
}

func (o *planOptions) printDecision(out io.Writer, s *snapshot.Snapshot, d *decision.Decision) error {
	if o.output == "json" {
		return json.NewEncoder(out).Encode(&decision.Record{Snapshot: s, Decision: d})
	}
	return decisionlog.PrintTable(out, s, d)
}

func (o *planOptions) readFile(in io.Reader) (*snapshot.Snapshot, error) {
	if o.snapshot == "-" {
		return decisionlog.Read(in)
	}
	file, err := os.Open(o.snapshot)
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	defer file.Close()
	return decisionlog.Read(file)
}

// readCluster runs one pass without effect, and returns its snapshot.
func (o *planOptions) readCluster(ctx context.Context, log io.Writer) (*snapshot.Snapshot, error) {
	cfg, err := o.Kube.RESTConfig("fairlead-variant-autoscaler-plan")
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	clients, err := kube.NewClientset(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	configMaps := kit.Kind{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Name: "ConfigMap", Namespace: o.Namespace,
		Required: true}
	w, err := dryrun.ReadCluster(ctx, client, []kit.Kind{configMaps})
	if err != nil {
		return nil, err
	}
	spectator := &passResult{settings: settingsOf(w, o.Settings(os.Getenv), log)}
	kinds := informers.Declare(o.Instance).EnabledKinds()
	if !o.Limiter && !spectator.settings.Limiter() {
		kinds = slices.DeleteFunc(kinds, func(k kit.Kind) bool { return !k.Required }) // only the limiter reads them
	}
	if w, err = dryrun.ReadCluster(ctx, client, kinds); err != nil {
		return nil, err
	}
	w.Print(log)
	caches, err := informers.Declare(o.Instance).Read(w.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	p := pass.New(pass.Params{
		Options: pass.Options{Settings: o.Plan, Limiter: o.Limiter, Writes: o.Actuator == config.ActuatorScale}, Log: zap.NewNop(),
		World: caches, Scales: scale.NewReader(client, scale.NewKinds(clients.Discovery(), clock.RealClock{})).BeginPass,
		LocalQueues: informers.NewQueueReader(client).BeginPass, Configuration: spectator.Settings,
		Prometheus: app.NewPrometheus(o.Config, zap.NewNop(), spectator.Settings).Collector, Publisher: spectator,
		ObservePart: func(string, time.Duration) {}, Now: time.Now,
	})
	if _, _, err := p.RunPass(ctx); err != nil {
		return nil, err
	}
	if spectator.outcome == nil {
		return nil, errors.New("the pass made no decision")
	}
	for i := range spectator.outcome.Sources.Rejected {
		v := &spectator.outcome.Sources.Rejected[i]
		fmt.Fprintf(log, "%s %s/%s takes no part: %s: %s\n", v.Source, v.Namespace, v.Name, v.Problem.Reason, v.Problem.Message)
	}
	return spectator.outcome.Snapshot, nil
}

// settingsOf returns what ConfigMaps that were read say. It prints each one that was looked for, found or not.
func settingsOf(w *dryrun.World, o settings.Options, log io.Writer) *settings.Settings {
	b, found := settings.NewBuilder(o), map[string]settings.Source{}
	for _, u := range w.Objects {
		if u.GetKind() == "ConfigMap" && u.GetNamespace() == o.Namespace && o.IsRelevant(u.GetName()) {
			data, _ := w.ConfigMapData(cache.ObjectName{Namespace: o.Namespace, Name: u.GetName()})
			found[u.GetName()] = settings.Source{Name: u.GetName(), Data: data}
		}
	}
	for _, kind := range settings.Kinds() {
		s := o.Select(kind, slices.Collect(maps.Keys(found)))
		var sources []settings.Source
		for _, name := range s.InForce {
			fmt.Fprintf(log, "ConfigMap %s/%s (%s): in force\n", o.Namespace, name, kind)
			sources = append(sources, found[name])
		}
		shown := slices.Sorted(maps.Keys(s.Ignored))
		for _, name := range shown {
			fmt.Fprintf(log, "ConfigMap %s/%s (%s): %s\n", o.Namespace, name, kind, s.Ignored[name])
		}
		for _, name := range o.SearchNames(kind) {
			if !slices.ContainsFunc(append(shown, s.InForce...), func(is string) bool { return settings.MatchesSearch(name, is) }) {
				fmt.Fprintf(log, "ConfigMap %s/%s (%s): not found\n", o.Namespace, name, kind)
			}
		}
		for _, warning := range b.SetSources(kind, sources...) {
			fmt.Fprintf(log, "ConfigMap %s/%s: %s\n", o.Namespace, s.InForce[0], warning.String())
		}
	}
	return b.Settings()
}

// passResult stores the outcome of a pass, and acts on nothing.
type passResult struct {
	settings *settings.Settings
	outcome  *pass.Outcome
}

// Settings returns the configuration of a pass.
func (s *passResult) Settings() *settings.Settings { return s.settings }

// Actuate implements the publisher of a pass.
func (s *passResult) Actuate(_ context.Context, o *pass.Outcome) { s.outcome = o }

// EndTerm implements the publisher of a pass.
func (*passResult) EndTerm() {}

// ReportOutcome implements the publisher of a pass.
func (*passResult) ReportOutcome(context.Context, *pass.Outcome) error { return nil }
