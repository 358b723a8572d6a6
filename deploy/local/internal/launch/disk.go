package launch

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// minFree is how much disk a cluster wants at its start, in bytes: etcd and logs.
	minFree = 256 << 20
	// fullBelow is what etcd cannot do without, in bytes: it claims the next 64 MB of its log at once.
	fullBelow = 64 << 20
	// diskPeriod is how often the disk of a running cluster is looked at.
	diskPeriod = 2 * time.Second
)

// enoughRoom refuses a folder whose disk is too full to start with.
func enoughRoom(dir string) error {
	free, err := freeDisk(dir)
	if err != nil {
		return err
	}
	if free < minFree {
		return fmt.Errorf("%d MB are free in %s, a cluster needs %d MB; make room, or name another folder", free>>20, dir, minFree>>20)
	}
	return nil
}

// watchDisk sends an error when the disk below dir is full, unless ctx ends before.
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
			err = fmt.Errorf("the disk is full: %d MB are free in %s, a running cluster needs %d MB; make room and start it again, or name another folder",
				free>>20, dir, fullBelow>>20)
		}
		full <- err
		return
	}
}

// freeDisk is what we may still write below dir, in bytes.
func freeDisk(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("look at free disk: %w", err)
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}
