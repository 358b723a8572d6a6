package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/dig"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"fairlead.dev/pkg/logging"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	differs := Explained("the cluster differs", 2)
	tests := []struct {
		err  error
		want int
		log  string
	}{
		{nil, 0, ""},
		{errors.New("no connection\nno file"), 1, "program: no connection; no file\n"},
		{fmt.Errorf("plan: %w", differs), 2, ""},
		{fmt.Errorf("start: %w", WithExitCode(errors.New("--rate is missing"), 3)), 3, "program: start: --rate is missing\n"},
		{fmt.Errorf("plan: %w", WithExitCode(differs, 4)), 4, "program: plan: the cluster differs\n"},
	}
	for _, tt := range tests {
		var log bytes.Buffer
		assert.Equal(t, tt.want, ExitCode("program", tt.err, &log), "%v", tt.err)
		assert.Equal(t, tt.log, log.String())
	}
	require.ErrorIs(t, fmt.Errorf("plan: %w", differs), differs)
}

// testProgram is a program with one flag.
func testProgram(out *bytes.Buffer) *cobra.Command {
	o, workers := logging.DefaultOptions(), 0
	return NewCommand(Program{
		Name: "program", Short: "Do nothing", Logging: &o,
		AddFlags: func(fs *pflag.FlagSet) { fs.IntVar(&workers, "workers", 1, "Number of workers.") },
		Check: CheckFlags(func() error {
			if workers < 1 {
				return fmt.Errorf("--workers %d is less than one", workers)
			}
			return nil
		}),
		Run: func(_ context.Context, log *zap.Logger) error {
			log.Info("Started", zap.Int("workers", workers))
			return errors.New("stopped")
		},
		PrintGraph: func(w io.Writer) error { return PrintGraph(w, testConstructors()) },
	}, out, out)
}

func TestNewCommand(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args      []string
		err, want string
	}{
		{[]string{"--workers=3"}, "stopped", `"message":"Started","workers":3`},
		{[]string{"--workers=0"}, "flags: --workers 0 is less than one", ""},
		{[]string{"serve"}, `unknown command "serve" for "program"`, ""},
		{[]string{"graph"}, "", "digraph"},
		{[]string{"--version"}, "", "program (devel)"},
		{[]string{"--help"}, "", "Number of workers."},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		root := testProgram(&out)
		root.SetArgs(tt.args)
		err := root.ExecuteContext(t.Context())
		if tt.err == "" {
			require.NoError(t, err, tt.args)
		} else {
			require.EqualError(t, err, tt.err, tt.args)
		}
		assert.Contains(t, out.String(), tt.want)
	}
}

// The test is not parallel: klog and the memory limit are global.
func TestOnlyMainSetsUpTheProcess(t *testing.T) {
	limit := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(limit) })
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	run := func(ctx context.Context) {
		root := testProgram(&out)
		root.SetArgs(nil)
		require.EqualError(t, root.ExecuteContext(ctx), "stopped")
	}
	read := make(chan struct{})
	go func() { // as a client in a test beside this one does: the race detector compares
		defer close(read)
		_ = klog.V(1).Enabled()
	}()
	run(t.Context())
	<-read

	run(withProcess(t.Context()))
	klog.Info("Listed")
	assert.Contains(t, out.String(), `"logger":"klog","message":"Listed"`)
}

type (
	testPart  struct{ registry *prometheus.Registry }
	testParts struct {
		dig.In

		Part *testPart
	}
)

func testConstructors() []any {
	return []any{NewRegistry, func(r *prometheus.Registry) *testPart { return &testPart{r} }}
}

func TestAssemble(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckAssembly[testParts](testConstructors()))
	parts, err := Assemble[testParts](testConstructors())
	require.NoError(t, err)
	families, err := parts.Part.registry.Gather()
	require.NoError(t, err)
	assert.NotEmpty(t, families)

	missing := testConstructors()[1:]
	require.ErrorContains(t, CheckAssembly[testParts](missing), "missing type: *prometheus.Registry")
	_, err = Assemble[testParts](missing)
	require.ErrorContains(t, err, "missing type: *prometheus.Registry")
	twice := append(testConstructors(), NewRegistry)
	require.ErrorContains(t, CheckAssembly[testParts](twice), "already provided")
	require.ErrorContains(t, PrintGraph(&bytes.Buffer{}, twice), "already provided")

	refused := errors.New("the file is gone")
	_, err = Assemble[testParts]([]any{func() (*testPart, error) { return nil, refused }})
	require.Equal(t, refused, err, "without the words of the container")
}

func TestFlagError(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unknown flag: --poolNam: did you mean --pool-name?": {"--poolNam=p"},
		"unknown flag: -poolName: did you mean --pool-name?": {"-poolName", "p"},
		"unknown flag: -x: see --help":                       {"-x"},
		`--load "x" is not a number`:                         {"--load=x"},
		"--load has no value: give one, as in --load=VALUE":  {"--load"},
		"bad flag syntax: --=x: see --help":                  {"--=x"},
		`--pods: ParseAddr("x"): unable to parse IP`:         {"--pods=x"},
		"unknown flag: --secret: see --help":                 {"--secret"},
	} {
		fs := pflag.NewFlagSet("program", pflag.ContinueOnError)
		fs.Float64("load", 0, "")
		fs.String("pool-name", "", "")
		fs.Bool("secrets", false, "")
		require.NoError(t, fs.MarkHidden("secrets"))
		fs.TextVar(&netip.Addr{}, "pods", netip.Addr{}, "")
		assert.EqualError(t, FlagError(fs, fs.Parse(args)), want)
	}
}
