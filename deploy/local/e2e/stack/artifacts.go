package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"fairlead.dev/pkg/kubetest/cluster"
)

// saveTimeout limits the time to save artifacts: the API server may be down.
const saveTimeout = 20 * time.Second

// SaveFailed saves the artifacts of a failed command in .local/failed of the repository, and returns an error with their path. It saves
// nothing if the command was interrupted.
func SaveFailed(ctx context.Context, c *cluster.Cluster, command string) error {
	if ctx.Err() != nil {
		return nil
	}
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".local", "failed", command)
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if err := c.Save(ctx, dir); err != nil {
		return fmt.Errorf("save artifacts: %w", err)
	}
	return fmt.Errorf("logs, events and objects are in %s", dir)
}
