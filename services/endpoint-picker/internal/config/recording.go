package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

const (
	flagRecordFile     = "record-file"
	flagRecordMaxBytes = "record-max-bytes"

	// minRecording is the smallest recording: four files of 1 MiB, a few thousand requests each.
	minRecording = 4 << 20
)

// Recording configures the recording of picked requests.
type Recording struct {
	File     string // empty: no recording
	MaxBytes Size   // of all its files
}

func (r *Recording) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&r.File, flagRecordFile, r.File,
		"File to record picked requests in, for endpoint-picker-replay: times, lengths and keyed hashes, without text. Empty: no "+
			"recording.")
	fs.Var(&r.MaxBytes, flagRecordMaxBytes, "Maximum total size of the recording: the file, and older parts with the suffixes .1 to .3.")
}

func (r Recording) validateFlags(e ExtProc) error {
	switch {
	case r.MaxBytes < minRecording:
		return fmt.Errorf("--%s %s is too small: give at least 4Mi", flagRecordMaxBytes, r.MaxBytes.String())
	case r.File != "" && e.LeaveEarly:
		return errors.New("--" + flagRecordFile + " has no effect with --" + flagEarlyClose +
			", which hides all answers: leave one of them out")
	}
	return nil
}
