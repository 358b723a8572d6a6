// Package promclient asks a Prometheus for instant vectors. Sizes and times of answers are bounded, and an answer that the server
// itself calls incomplete is an error. Tokens and certificates follow their files. A token goes to the configured host only: redirects
// are errors.
package promclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Series is an element of a vector.
type Series struct {
	Labels map[string]string
	Value  float64 // possibly NaN or infinite
}

// Client asks one Prometheus. It is safe for concurrent use.
type Client struct {
	config      Config
	endpoint    string
	credentials credentials
}

// StatusError is an answer other than a vector.
type StatusError struct {
	Code    int    // of HTTP
	Type    string // of Prometheus, such as execution or timeout
	Message string
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("Prometheus answered %d %s", e.Code, http.StatusText(e.Code))
	if e.Type != "" {
		text += " (" + e.Type + ")"
	}
	if e.Message != "" {
		text += ": " + strconv.Quote(e.Message)
	}
	switch e.Code {
	case http.StatusUnauthorized:
		text += ": set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH to a token that it accepts"
	case http.StatusForbidden:
		text += ": give the user of the token the right to query"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		text += ": check PROMETHEUS_BASE_URL, which must lead to an API of Prometheus that accepts POST /api/v1/query"
	}
	return text
}

// maxMessage is the length of what is shown of a text that a server wrote.
const maxMessage = 300

// maxError is the size of the largest body that is read of an answer other than 200.
const maxError = 16 << 10

// New returns a Client. It reads the files of the configuration, and sends nothing.
func New(config Config, log *zap.Logger) (*Client, error) {
	endpoint, urlErr := config.queryURL()
	if err := errors.Join(urlErr, config.checkToken()); err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.MaxBytes = cmp.Or(config.MaxBytes, defaultMaxBytes)
	config.MaxSeries = cmp.Or(config.MaxSeries, defaultMaxSeries)
	c := &Client{config: config, endpoint: endpoint.String()}
	c.credentials.config, c.credentials.log = &c.config, log
	if _, err := c.credentials.currentTransport(); err != nil {
		return nil, err
	}
	if endpoint.Scheme == "http" {
		log.Warn("Queries to Prometheus are not encrypted, as allowed explicitly: use https where others can read the network",
			zap.String("host", endpoint.Host), zap.Bool("sendsToken", config.BearerToken != "" || config.TokenPath != ""))
	}
	if config.InsecureSkipVerify {
		log.Warn("The certificate of Prometheus is not verified: set PROMETHEUS_CA_CERT_PATH instead of PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",
			zap.String("host", endpoint.Host))
	}
	return c, nil
}

// Query returns the vector of an expression, evaluated at the server's present. A refused token is read again from its file and, if it
// is another one, sent once.
func (c *Client) Query(ctx context.Context, expr string) ([]Series, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	token, err := c.credentials.bearerToken(false)
	if err != nil {
		return nil, err
	}
	series, err := c.sendQuery(ctx, expr, token)
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusUnauthorized {
		if fresh, readErr := c.credentials.bearerToken(true); readErr == nil && fresh != token {
			return c.sendQuery(ctx, expr, fresh)
		}
	}
	return series, err
}

// Close ends idle connections.
func (c *Client) Close() {
	if t, err := c.credentials.currentTransport(); err == nil {
		t.CloseIdleConnections()
	}
}

func (c *Client) sendQuery(ctx context.Context, expr, token string) ([]Series, error) {
	transport, err := c.credentials.currentTransport()
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"query":   {expr},
		"timeout": {strconv.FormatInt(c.config.Timeout.Milliseconds(), 10) + "ms"},
		// Thanos: an error instead of the part of the answer that its reachable stores have.
		"partial_response": {"false"},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("query Prometheus: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header["Idempotency-Key"] = nil // not sent: it lets net/http repeat the request if an idle connection was closed
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, c.explainError(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusalError(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, c.config.MaxBytes+1))
	if err == nil {
		err = ctx.Err() // a server that sees the client leave can end its answer early, and the client can read that end before its own
	}
	if err != nil {
		return nil, c.explainError(ctx, err)
	}
	if int64(len(body)) > c.config.MaxBytes {
		return nil, fmt.Errorf("Prometheus answered with more than %d bytes: too many series match", c.config.MaxBytes) //nolint:staticcheck // a name
	}
	return c.parseAnswer(body)
}

// explainError adds a remedy to an error of the connection.
func (c *Client) explainError(ctx context.Context, err error) error {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var plain tls.RecordHeaderError
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("query Prometheus: no answer in time, which is at most %v: %w", c.config.Timeout.Round(time.Millisecond), context.DeadlineExceeded)
	case errors.As(err, &verification), errors.As(err, &authority):
		return fmt.Errorf("query Prometheus: %w: set PROMETHEUS_CA_CERT_PATH, and PROMETHEUS_SERVER_NAME if its certificate is for another name", err)
	case errors.As(err, &plain):
		return fmt.Errorf("query Prometheus: %w: it does not serve TLS at PROMETHEUS_BASE_URL", err)
	}
	return fmt.Errorf("query Prometheus: %w", err)
}

// refusalError returns the error of an answer other than 200.
func refusalError(response *http.Response) error {
	if response.StatusCode >= 300 && response.StatusCode < 400 {
		return fmt.Errorf("Prometheus redirects to %s: set PROMETHEUS_BASE_URL to the address without a redirect", //nolint:staticcheck // a name
			strconv.Quote(shortenText(response.Header.Get("Location"))))
	}
	failed := &StatusError{Code: response.StatusCode}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	var answer answer
	if err == nil && json.Unmarshal(body, &answer) == nil {
		failed.Type, failed.Message = shortenText(answer.ErrorType), shortenText(answer.Error)
	}
	return failed
}

// answer is the JSON of Prometheus' API.
type answer struct {
	Status    string   `json:"status"`
	ErrorType string   `json:"errorType"`
	Error     string   `json:"error"`
	Warnings  []string `json:"warnings"`
	Data      struct {
		ResultType string            `json:"resultType"`
		Result     []json.RawMessage `json:"result"`
	} `json:"data"`
}

// element is an element of a vector: its value is a time and a number in quotes.
type element struct {
	Metric map[string]string  `json:"metric"`
	Value  [2]json.RawMessage `json:"value"`
}

func (c *Client) parseAnswer(body []byte) ([]Series, error) {
	var answer answer
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read the answer of Prometheus: %w: check that PROMETHEUS_BASE_URL leads to a Prometheus", err)
	}
	if answer.Status != "success" || answer.Data.ResultType != "vector" {
		return nil, &StatusError{Code: http.StatusOK, Type: shortenText(answer.ErrorType),
			Message: shortenText("status " + answer.Status + ", result " + answer.Data.ResultType + " " + answer.Error)}
	}
	for _, w := range answer.Warnings {
		if !strings.HasPrefix(w, "PromQL ") { // those of the language concern the expression; others, stores that were not reached
			return nil, fmt.Errorf("Prometheus calls its answer incomplete: %q", shortenText(w)) //nolint:staticcheck // a name
		}
	}
	if len(answer.Data.Result) > c.config.MaxSeries {
		return nil, fmt.Errorf("Prometheus answered with %d series, more than %d: too many series match", //nolint:staticcheck // a name
			len(answer.Data.Result), c.config.MaxSeries)
	}
	vector := make([]Series, 0, len(answer.Data.Result))
	for _, raw := range answer.Data.Result {
		var e element
		var text string
		err := json.Unmarshal(raw, &e)
		if err == nil {
			err = json.Unmarshal(e.Value[1], &text)
		}
		value := math.NaN()
		if err == nil {
			value, err = strconv.ParseFloat(text, 64)
		}
		if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range is infinite
			return nil, fmt.Errorf("read a value in the answer of Prometheus: %w", err)
		}
		vector = append(vector, Series{Labels: e.Metric, Value: value})
	}
	return vector, nil
}

func shortenText(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}
