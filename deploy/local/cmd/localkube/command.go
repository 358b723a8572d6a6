package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/local/internal/launch"
	"fairlead.dev/pkg/kubetest/clusterapi"
	"fairlead.dev/pkg/version"
)

const shimName = "localkube-shim"

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "localkube",
		Short:         "A whole Kubernetes in one folder, without containers",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(upCommand(), statusCommand(), nodeCommand(), componentCommand(), snapshotCommand(), restoreCommand(), imageCommand(),
		downCommand(),
		foreign("kubectl", "Kubernetes' command line"), foreign("helm", "Helm's command line"))
	return root
}

// foreign lists a program in the help; main runs it before cobra parses the arguments.
func foreign(name, short string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
		return fmt.Errorf("%s must come first on the command line", name)
	}}
}

type upOptions struct {
	file       string
	config     clusterapi.Config
	nodes      int
	gpus       int
	fast       bool
	publish    []string
	args       []string
	untilStdin bool
	detach     bool
}

func upCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and keep it until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.complete()
			if err != nil {
				return err
			}
			if o.detach {
				return launch.Detach(cfg.Dir, attached(os.Args[1:]), os.Stdout, os.Stderr)
			}
			if o.untilStdin {
				ctx, cancel := context.WithCancel(cmd.Context())
				go func() {
					_, _ = io.Copy(io.Discard, os.Stdin) // until it closes
					cancel()
				}()
				return up(ctx, cfg)
			}
			return up(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "config", "", "YAML file with the cluster configuration; flags extend it")
	f.StringVar(&o.config.Dir, "dir", "", "folder for all state (required here or in --config)")
	f.StringVar(&o.config.Images, "images", "", "image store")
	f.StringArrayVar(&o.config.InsecureRegistries, "insecure-registry", nil, "HOST:PORT of a registry that nodes may pull from in plain HTTP, besides private addresses; repeatable")
	f.StringVar(&o.config.APIAddress, "api", "", "host address of the API server (default 127.0.0.1:0, a free port)")
	f.IntVar(&o.nodes, "nodes", 0, "number of nodes (default 1)")
	f.IntVar(&o.gpus, "gpus", 0, "simulated nvidia.com/gpu of each node")
	f.BoolVar(&o.config.ControlPlaneOnly, "control-plane-only", false, "only etcd and the API server")
	f.BoolVar(&o.fast, "fast-timings", false, "detect a dead node within seconds")
	f.StringArrayVar(&o.publish, "publish", nil, "HOST:PORT=SERVICE.NAMESPACE:PORT, a service on a host address; repeatable")
	f.StringArrayVar(&o.args, "arg", nil, "COMPONENT=FLAG, a further flag of a component; repeatable")
	f.StringVar(&o.config.ServiceProxy, "service-proxy", "", "implementation of Services on nodes: kube-proxy or userspace (default kube-proxy if it works)")
	f.BoolVar(&o.config.Audit, "audit", false, "write an audit log")
	f.IntVar(&o.config.Verbosity, "verbosity", 0, "log verbosity of the components")
	f.BoolVar(&o.untilStdin, "until-stdin-closes", false, "end when standard input ends, so that the cluster cannot outlive its caller")
	f.BoolVar(&o.detach, "detach", false, "return once the cluster is ready; localkube down ends it")
	cmd.MarkFlagsMutuallyExclusive("detach", "until-stdin-closes")
	return cmd
}

// attached returns the arguments without --detach.
func attached(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--detach" || arg == "--detach=true" })
}

func downCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: "down", Short: "End a running cluster and remove its folder", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if _, err := clientFor(dir); err != nil {
			return err
		}
		err := launch.Stop(cmd.Context(), dir)
		if errors.Is(err, launch.ErrNotRunning) {
			fmt.Fprintln(cmd.OutOrStdout(), err)
			return nil
		}
		return err
	}}
	addDirFlag(cmd, &dir)
	return cmd
}

// complete merges file and flags into one configuration.
func (o *upOptions) complete() (clusterapi.Config, error) {
	c, err := readConfig(o.file)
	if err != nil {
		return c, err
	}
	override(&c.Dir, o.config.Dir)
	override(&c.Images, o.config.Images)
	override(&c.APIAddress, o.config.APIAddress)
	override(&c.ServiceProxy, o.config.ServiceProxy)
	override(&c.Verbosity, o.config.Verbosity)
	override(&c.ControlPlaneOnly, o.config.ControlPlaneOnly)
	override(&c.Audit, o.config.Audit)
	c.InsecureRegistries = append(c.InsecureRegistries, o.config.InsecureRegistries...)
	if o.fast {
		c.Timings = clusterapi.FastTimings()
	}
	o.addNodes(&c)
	if err := o.addPublished(&c); err != nil {
		return c, err
	}
	if err := o.addArgs(&c); err != nil {
		return c, err
	}
	return c, c.Complete()
}

func readConfig(file string) (clusterapi.Config, error) {
	var c clusterapi.Config
	if file == "" {
		return c, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return c, fmt.Errorf("read configuration %s: %w", file, err)
	}
	return c, nil
}

func (o *upOptions) addNodes(c *clusterapi.Config) {
	if c.ControlPlaneOnly {
		return
	}
	for len(c.Nodes) < max(o.nodes, 1) {
		c.Nodes = append(c.Nodes, clusterapi.Node{})
	}
	for i := range c.Nodes {
		if o.gpus > 0 {
			c.Nodes[i].Extended = map[string]string{"nvidia.com/gpu": strconv.Itoa(o.gpus)}
		}
	}
}

func (o *upOptions) addPublished(c *clusterapi.Config) error {
	for _, p := range o.publish {
		host, target, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("--publish %q is not HOST:PORT=SERVICE.NAMESPACE:PORT", p)
		}
		c.Publish = append(c.Publish, clusterapi.Publish{Host: host, Target: target})
	}
	return nil
}

func (o *upOptions) addArgs(c *clusterapi.Config) error {
	for _, a := range o.args {
		name, flag, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("--arg %q is not COMPONENT=FLAG", a)
		}
		if c.Args == nil {
			c.Args = map[string][]string{}
		}
		c.Args[name] = append(c.Args[name], flag)
	}
	return nil
}

func override[T comparable](v *T, with T) {
	var zero T
	if with != zero {
		*v = with
	}
}

func up(ctx context.Context, cfg clusterapi.Config) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	shim := filepath.Join(filepath.Dir(self), shimName)
	if _, err := os.Stat(shim); err != nil && !cfg.ControlPlaneOnly {
		return fmt.Errorf("%s is missing beside localkube; make local builds both", shimName)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return launch.Run(ctx, launch.Params{Config: cfg, Shim: shim, Out: os.Stdout, Progress: os.Stderr})
}

// addDirFlag adds --dir, the folder of a running cluster, to a command and its sub-commands.
func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.PersistentFlags().StringVar(dir, "dir", os.Getenv("LOCALKUBE_DIR"), "folder of the running cluster (or $LOCALKUBE_DIR)")
}

func clientFor(dir string) (*clusterapi.Client, error) {
	if dir == "" {
		return nil, errors.New("--dir: name the folder of the running cluster")
	}
	return clusterapi.NewClient(dir), nil
}
