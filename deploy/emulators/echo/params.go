package echo

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Query parameters. Others are only echoed.
const (
	paramStatus   = "status"
	paramHold     = "hold"
	paramDelay    = "delay"
	paramEvents   = "events"
	paramInterval = "interval"
	paramPause    = "pause"
)

// Limits of the parameters.
const (
	maxEvents = 1_000_000
	maxWait   = time.Hour
)

// params control the answer to one request.
type params struct {
	status   int
	hold     time.Duration // before the body of the request is read
	delay    time.Duration // before the header of the answer
	events   int           // 0: no stream
	interval time.Duration // before each event except the first
	pause    time.Duration // before the last event, in addition to the interval
}

// before returns the time to wait before an event.
func (p params) before(event int) time.Duration {
	var d time.Duration
	if event > 1 {
		d = p.interval
	}
	if event == p.events {
		d += p.pause
	}
	return d
}

// parse parses a query. Other parameters, even malformed ones, are not errors, because tests of gateways send them.
func parse(query string) (params, error) {
	values, _ := url.ParseQuery(query) // with an error it returns the valid parameters
	p := params{status: http.StatusOK}
	for name, to := range map[string]*time.Duration{
		paramHold: &p.hold, paramDelay: &p.delay, paramInterval: &p.interval, paramPause: &p.pause,
	} {
		if err := parseWait(values, name, to); err != nil {
			return params{}, err
		}
	}
	if err := parseNumber(values, paramStatus, 200, 599, &p.status); err != nil {
		return params{}, err
	}
	return p, parseNumber(values, paramEvents, 0, maxEvents, &p.events)
}

func parseWait(values url.Values, name string, to *time.Duration) error {
	if !values.Has(name) {
		return nil
	}
	d, err := time.ParseDuration(values.Get(name))
	if err != nil || d < 0 || d > maxWait {
		return fmt.Errorf("%s=%q is invalid: give a duration from 0s to %v", name, values.Get(name), maxWait)
	}
	*to = d
	return nil
}

func parseNumber(values url.Values, name string, least, most int, to *int) error {
	if !values.Has(name) {
		return nil
	}
	n, err := strconv.Atoi(values.Get(name))
	if err != nil || n < least || n > most {
		return fmt.Errorf("%s=%q is invalid: give a number from %d to %d", name, values.Get(name), least, most)
	}
	*to = n
	return nil
}
