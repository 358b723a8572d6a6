package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// addresses are where the program listens. It gets free ports, and logs them.
type addresses struct{ health, notFound, noBackends string }

// readAddresses reads the log of the program as far as it is written.
func readAddresses(log string) (addresses, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return addresses{}, fmt.Errorf("read log of the program: %w", err)
	}
	var a addresses
	for line := range strings.Lines(string(text)) {
		var entry struct {
			Address, Flag string
			Status        int
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Address == "" { // the last line may not be complete
			continue
		}
		switch {
		case entry.Flag == "health-probe-bind-address":
			a.health = entry.Address
		case entry.Status == http.StatusNotFound:
			a.notFound = entry.Address
		case entry.Status == http.StatusInternalServerError:
			a.noBackends = entry.Address
		}
	}
	return a, nil
}

// awaitAddresses waits until the program listens everywhere.
func (w *world) awaitAddresses(ctx context.Context, log string) (addresses, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		a, err := readAddresses(log)
		if err != nil || a.health != "" && a.notFound != "" && a.noBackends != "" {
			return a, err
		}
		if err := w.failure(); err != nil {
			return a, err
		}
		select {
		case <-time.After(beat):
		case <-ctx.Done():
			return a, errors.Join(ctx.Err(), fmt.Errorf("the program listens at %+v only: see %s", a, log))
		}
	}
}
