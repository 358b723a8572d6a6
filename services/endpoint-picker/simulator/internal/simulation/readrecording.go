package simulation

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

// Limits on a recording. A simulation needs some hundred bytes for a request, and 4 bytes for each 16 tokens.
const (
	// maxRequests is half an hour at 1000 requests per second: about 500 MB of lines.
	maxRequests = 2 << 20
	// maxTotal limits the tokens of all requests: maxRequests with 2048 tokens each, 1 GiB in a simulation.
	maxTotal = 4 << 30
)

// Limits on one request.
const (
	// maxMilliseconds is the largest time, ten years. Larger ones lose fractions of a millisecond.
	maxMilliseconds = 10 * 366 * 24 * 3600 * 1e3
	// maxLine is the length of a line in bytes: 2048 hashes of 20 digits, and as much for fields of other programs.
	maxLine = 128 << 10
	// maxEndpoints limits the numbers of endpoints, so that tables by endpoint stay small.
	maxEndpoints = 1 << 16
)

// gzipMagic is how files of gzip begin.
var gzipMagic = []byte{0x1f, 0x8b}

// ReadRecording reads a recording, plain or compressed by gzip, and returns its requests by time of arrival. Files come from anywhere, so
// it bounds the length of a line, every number, and the sum of tokens. Errors name the line.
func ReadRecording(from io.Reader) ([]recorder.RecordedRequest, error) {
	buffered := bufio.NewReader(from)
	if head, _ := buffered.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) { // a shorter file is not of gzip
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		return readLines(unzipped)
	}
	return readLines(buffered)
}

func readLines(from io.Reader) ([]recorder.RecordedRequest, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	var requests []recorder.RecordedRequest
	total, number := 0, 0
	for lines.Scan() {
		if number++; number > maxRequests {
			return nil, fmt.Errorf("line %d of the recording: it has more than %d lines: split the file", number, maxRequests)
		}
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		r, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the recording: %w", number, err)
		}
		if total += r.Input + r.Output; total > maxTotal {
			return nil, fmt.Errorf("line %d of the recording: the requests have more than %d tokens in all: split the file", number,
				maxTotal)
		}
		requests = append(requests, r)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d of the recording: it is longer than %d bytes", number+1, maxLine)
	case err != nil:
		return nil, fmt.Errorf("read recording after line %d: %w", number, err)
	}
	slices.SortStableFunc(requests, func(a, b recorder.RecordedRequest) int { return cmp.Compare(*a.Timestamp, *b.Timestamp) })
	return requests, nil
}

func parseLine(line []byte) (recorder.RecordedRequest, error) {
	var r recorder.RecordedRequest
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("parse JSON: %w", err)
	}
	if decoder.More() {
		return r, errors.New("it has more than one JSON object")
	}
	return r, cmp.Or(validateRecorded(&r), validateExtension(&r.Extension))
}

func validateRecorded(r *recorder.RecordedRequest) error {
	switch {
	case r.Timestamp == nil:
		return errors.New("timestamp is missing")
	case !inRange(*r.Timestamp, 0, maxMilliseconds):
		return fmt.Errorf("timestamp %v is out of range: it must be in milliseconds, from 0 to ten years", *r.Timestamp)
	case r.Input < 1 || r.Output < 1:
		return errors.New("input_length and output_length must be at least 1")
	case r.Input > recorder.MaxTokens || r.Output > recorder.MaxTokens:
		return fmt.Errorf("input_length and output_length must be at most %d", recorder.MaxTokens)
	case len(r.Hashes) != request.PrefixCount(r.Input):
		return fmt.Errorf("hash_ids has %d entries and input_length is %d: it must have one for each %d tokens", len(r.Hashes), r.Input,
			request.PrefixTokens)
	}
	return nil
}

func validateExtension(e *recorder.Extension) error {
	switch {
	case !validCount(e.Endpoint, math.MaxInt32) || !validCount(&e.Endpoints, maxEndpoints):
		return errors.New("endpoint or endpoints is out of range")
	case !validTime(e.TTFT) || !validTime(e.Duration):
		return errors.New("ttft_ms or duration_ms is out of range")
	case !validCount(&e.Prompt, recorder.MaxTokens), !validCount(e.Cached, recorder.MaxTokens),
		!validCount(&e.Matched, recorder.MaxTokens):
		return fmt.Errorf("prompt_tokens, cached_tokens and matched_tokens must be from 0 to %d", recorder.MaxTokens)
	}
	return nil
}

func validCount(n *int, most int) bool { return n == nil || *n >= 0 && *n <= most }

func validTime(ms *float64) bool { return ms == nil || inRange(*ms, 0, maxMilliseconds) }

func inRange(x, low, high float64) bool { return x >= low && x <= high }
