package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show the components and nodes of a running cluster", Args: cobra.NoArgs}
	var dir string
	addDirFlag(cmd, &dir)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := clientFor(dir)
		if err != nil {
			return err
		}
		s, err := c.Status(cmd.Context())
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "COMPONENT\tSTATE\tRESTARTS")
		for _, p := range s.Components {
			fmt.Fprintf(w, "%s\t%s\t%d\n", p.Name, p.State, p.Restarts)
		}
		fmt.Fprintln(w, "\nNODE\tSTATE\tCUT\tBOOTS\tADDRESS\tPODS\tSERVICES")
		for _, n := range s.Nodes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", n.Name, n.State, n.Cut, n.Boots, n.Address, n.PodCIDR, n.ServiceProxy)
		}
		if s.NoLimits != "" {
			fmt.Fprintf(w, "\nLimits of containers are not enforced: %s\n", s.NoLimits)
		}
		return w.Flush()
	}
	return cmd
}

func nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Kill, restart, pause, resume, cut or heal a node of a running cluster"}
	var dir string
	addDirFlag(cmd, &dir)
	for action, short := range map[string]string{
		clusterapi.ActionKill:    "Kill the node with all its processes; it stays down",
		clusterapi.ActionRestart: "Reboot the node, or boot a dead one",
		clusterapi.ActionPause:   "Stop every process of the node without ending it",
		clusterapi.ActionResume:  "Resume a paused node",
		clusterapi.ActionHeal:    "End a cut",
	} {
		cmd.AddCommand(act(&dir, action, "NODE", short, func(ctx context.Context, c *clusterapi.Client, name string) error {
			return c.Node(ctx, name, action)
		}))
	}
	var direction string
	cut := act(&dir, clusterapi.ActionCut, "NODE", "Drop every packet between a node and the rest", func(ctx context.Context, c *clusterapi.Client, name string) error {
		return c.Cut(ctx, name, clusterapi.Direction(direction))
	})
	cut.Flags().StringVar(&direction, "direction", string(clusterapi.CutBoth), "packets to drop, from the perspective of the node: both, inbound or outbound")
	cmd.AddCommand(cut)
	return cmd
}

func componentCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "component", Short: "Kill, stop, start, restart, pause or resume a control-plane program",
		Long: "Components: " + strings.Join([]string{clusterapi.Etcd, clusterapi.APIServer, clusterapi.ControllerManager, clusterapi.Scheduler}, ", ")}
	var dir string
	addDirFlag(cmd, &dir)
	for action, short := range map[string]string{
		clusterapi.ActionKill:    "Kill it; it restarts with its data",
		clusterapi.ActionStop:    "Stop it with SIGTERM; it stays down",
		clusterapi.ActionStart:   "Start a stopped one",
		clusterapi.ActionRestart: "Stop and start it",
		clusterapi.ActionPause:   "Stop its process without ending it",
		clusterapi.ActionResume:  "Resume a paused one",
	} {
		cmd.AddCommand(act(&dir, action, "COMPONENT", short, func(ctx context.Context, c *clusterapi.Client, name string) error {
			return c.Component(ctx, name, action)
		}))
	}
	return cmd
}

func snapshotCommand() *cobra.Command {
	var dir string
	cmd := act(&dir, "snapshot", "FILE", "Save the state of a running cluster", func(ctx context.Context, c *clusterapi.Client, file string) error {
		return c.Snapshot(ctx, file)
	})
	addDirFlag(cmd, &dir)
	return cmd
}

func restoreCommand() *cobra.Command {
	var dir string
	cmd := act(&dir, "restore", "FILE", "Restore a running cluster from a snapshot", func(ctx context.Context, c *clusterapi.Client, file string) error {
		return c.Restore(ctx, file)
	})
	addDirFlag(cmd, &dir)
	return cmd
}

// act returns a command with one action on one object of the cluster in dir.
func act(dir *string, action, object, short string, do func(context.Context, *clusterapi.Client, string) error) *cobra.Command {
	return &cobra.Command{Use: action + " " + object, Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		c, err := clientFor(*dir)
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args[0])
	}}
}
