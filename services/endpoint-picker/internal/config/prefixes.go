package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

const (
	flagPrefixIndex = "prefix-index-max-bytes"
	minPrefixIndex  = 1 << 20
)

// Prefixes configures the index of cached prefixes.
type Prefixes struct {
	MaxBytes  Size
	StateFile string // to keep the indexes in for the next process; empty: none
}

func (p *Prefixes) addFlags(fs *pflag.FlagSet) {
	fs.Var(&p.MaxBytes, flagPrefixIndex,
		"Memory for the indexes of prefix caches of all pools. The least recently used prefixes are dropped first.")
	fs.StringVar(&p.StateFile, "state-file", p.StateFile,
		"File for what the picker knows of prefix caches, so that it knows them after a restart: hashes without text, of at most "+
			"--"+flagPrefixIndex+". It is written every 10 s, at SIGTERM and at the end. Empty: none.")
}

func (p Prefixes) validateFlags() error {
	if p.MaxBytes < minPrefixIndex {
		return fmt.Errorf("--%s %s is too small: give at least 1Mi", flagPrefixIndex, p.MaxBytes.String())
	}
	return nil
}
