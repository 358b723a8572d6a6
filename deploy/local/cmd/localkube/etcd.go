package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// snapshotTimeout limits a snapshot; databases here are a few MB.
const snapshotTimeout = time.Minute

// snapshotEtcd writes a consistent snapshot of a running etcd to a file.
func snapshotEtcd(args []string) error {
	fs := pflag.NewFlagSet("etcd-snapshot", pflag.ContinueOnError)
	endpoint := fs.String("endpoint", "", "client URL of etcd")
	file := fs.String("file", "", "file to write")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
	defer cancel()
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second},
		*file); err != nil {
		return fmt.Errorf("save snapshot: %w", err)
	}
	return nil
}

// restoreEtcd creates a data folder from a snapshot.
func restoreEtcd(args []string) error {
	wal.SegmentSizeBytes = walSegment
	fs := pflag.NewFlagSet("etcd-restore", pflag.ContinueOnError)
	file := fs.String("file", "", "snapshot to read")
	dir := fs.String("data-dir", "", "folder to make")
	peer := fs.String("peer-url", "", "peer URL of the member")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if _, err := url.Parse(*peer); err != nil {
		return fmt.Errorf("read --peer-url: %w", err)
	}
	cfg := snapshot.RestoreConfig{SnapshotPath: *file, Name: "default", OutputDataDir: *dir, PeerURLs: []string{*peer},
		InitialCluster: "default=" + *peer, InitialClusterToken: "etcd-cluster"}
	if err := snapshot.NewV3(zap.NewNop()).Restore(cfg); err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	return nil
}
