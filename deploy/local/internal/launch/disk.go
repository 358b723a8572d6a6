package launch

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// minFree is the minimum free disk space to start a cluster, in bytes: for etcd and logs.
	minFree = 256 << 20
	// fullBelow is the minimum free disk space for etcd, in bytes: it allocates the next 64 MB of its log at once.
	fullBelow = 64 << 20
	// diskPeriod is the interval of checks of the disk of a running cluster.
	diskPeriod = 2 * time.Second
)

// enoughRoom refuses a folder with too little free disk space.
func enoughRoom(dir string) error {
	free, err := freeDisk(dir)
	if err != nil {
		return err
	}
	if free < minFree {
		return fmt.Errorf("%d MB are free in %s, a cluster needs %d MB; free disk space, or name another folder", free>>20, dir, minFree>>20)
	}
	return nil
}

// watchDisk sends an error when the disk of dir is full, unless ctx ends first.
func watchDisk(ctx context.Context, dir string, full chan<- error) {
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		free, err := freeDisk(dir)
		if err == nil && free >= fullBelow {
			continue
		}
		if err == nil {
			err = fmt.Errorf("the disk is full: %d MB are free in %s, a running cluster needs %d MB; free disk space and restart it, or name another folder",
				free>>20, dir, fullBelow>>20)
		}
		full <- err
		return
	}
}

// freeDisk returns the space that we can still use in dir, in bytes.
func freeDisk(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("read free disk space: %w", err)
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}
