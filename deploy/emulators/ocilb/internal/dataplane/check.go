package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// nodes is the number of nodes of a load balancer. Each of them checks all backends.
const nodes = 2

// Results of a health check.
const (
	resultOK            = "OK"
	resultStatus        = "INVALID_STATUS_CODE"
	resultTimedOut      = "TIMED_OUT"
	resultRegex         = "REGEX_MISMATCH"
	resultConnectFailed = "CONNECT_FAILED"
	resultIOError       = "IO_ERROR"
)

// maxCheckedBody is the length of a body that is compared with the expression of a health check.
const maxCheckedBody = 64 << 10

// check is what a node knows of a backend.
type check struct {
	mu       sync.Mutex
	result   string // of the last check; empty before the first
	failures int    // in a row
	good     bool   // after the last changes
}

func (c *check) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result
}

// record takes a result. A backend is bad after as many failures in a row as the health check has retries, and good after one
// success.
func (c *check) record(result string, retries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.result == ""
	if c.result = result; result == resultOK {
		c.good, c.failures = true, 0
		return
	}
	if c.failures++; first || c.failures >= retries {
		c.good = false
	}
}

// healthy reports whether a backend may get requests: all nodes must find it good. Before the first check, unchecked decides.
func (b *backend) healthy(unchecked bool) bool {
	for _, c := range b.checks {
		c.mu.Lock()
		ok := c.good || c.result == "" && unchecked
		c.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// startChecks starts the health checks of a backend anew. Its results stay until the next ones.
func (s *backendSet) startChecks(b *backend) {
	if b.stop != nil {
		b.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	if b.checks == nil {
		for range nodes {
			b.checks = append(b.checks, &check{})
		}
	}
	h, target, secure := s.checker, b.address, s.tls
	if h.Port != 0 {
		target = net.JoinHostPort(b.IPAddress, strconv.Itoa(h.Port))
	}
	interval := time.Duration(h.IntervalInMillis) * time.Millisecond
	for i, c := range b.checks {
		go func() {
			timer := time.NewTimer(interval * time.Duration(i+1) / (2 * nodes)) // nodes do not check at the same time
			defer timer.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-timer.C:
				}
				c.record(s.probe(ctx, h, secure, target), h.Retries)
				timer.Reset(interval)
			}
		}()
	}
}

// probe checks the health of a backend once.
func (s *backendSet) probe(ctx context.Context, h lbapi.HealthChecker, secure *clientTLS, target string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(h.TimeoutInMillis)*time.Millisecond)
	defer cancel()
	if h.Protocol == lbapi.TCP {
		conn, err := s.o.Dial(ctx, "tcp", target)
		if err != nil {
			return resultOf(err)
		}
		_ = conn.Close()
		return resultOK
	}
	if h.IsForcePlainText {
		secure = nil
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, s.o, secure, address) },
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/"+strings.TrimPrefix(h.URLPath, "/"), http.NoBody)
	if err != nil {
		return resultIOError
	}
	response, err := client.Do(request)
	if err != nil {
		return resultOf(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxCheckedBody))
	switch {
	case err != nil:
		return resultOf(err)
	case response.StatusCode != h.ReturnCode:
		return resultStatus
	}
	if matched, err := regexp.Match(h.ResponseBodyRegex, body); err != nil || !matched {
		return resultRegex
	}
	return resultOK
}

// resultOf returns the result for an error.
func resultOf(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return resultTimedOut
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &op) && op.Op == "dial":
		return resultConnectFailed
	}
	return resultIOError
}
