// Package signature verifies the signatures of requests to OCI's API: draft-cavage HTTP signatures, version 1, RSA-SHA256.
//
//	every request       date, (request-target), host
//	POST, PUT, PATCH    also content-length, content-type, x-content-sha256, which must match the body
//
// A request may sign x-date instead of date. The signing string has a line "name: value" for each signed header.
package signature

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	target    = "(request-target)"
	algorithm = "rsa-sha256"
	version   = "1"
)

// Signed headers that every request needs, and those that a request with a body needs besides.
var (
	always   = []string{target, "host"}
	withBody = []string{"content-length", "content-type", "x-content-sha256"}
)

// Verifier verifies requests.
type Verifier struct {
	Key  func(id string) *rsa.PublicKey // nil for an unknown id
	Skew time.Duration                  // limit for the difference between a request's date and Now
	Now  func() time.Time
}

// Verify returns an error unless a request with a body has a valid signature.
func (v *Verifier) Verify(r *http.Request, body []byte) error {
	p, err := parse(r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	if err := p.covers(r.Method); err != nil {
		return err
	}
	if err := v.checkDate(r, p.headers); err != nil {
		return err
	}
	if slices.Contains(p.headers, "x-content-sha256") {
		if err := checkBody(r, body); err != nil {
			return err
		}
	}
	key := v.Key(p.keyID)
	if key == nil {
		return fmt.Errorf("key %q is unknown", p.keyID)
	}
	digest := sha256.Sum256([]byte(signingString(r, p.headers)))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], p.signature); err != nil {
		return errors.New("the signature does not match the request")
	}
	return nil
}

// parameters are the parameters of an Authorization header.
type parameters struct {
	keyID     string
	headers   []string
	signature []byte
}

// parse parses an Authorization header.
func parse(header string) (*parameters, error) {
	rest, ok := strings.CutPrefix(header, "Signature ")
	if !ok {
		return nil, errors.New("the Authorization header is missing or of another scheme")
	}
	values := map[string]string{}
	for field := range strings.SplitSeq(rest, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(field), "=")
		unquoted, err := strconv.Unquote(value)
		if _, again := values[name]; !found || err != nil || again {
			return nil, fmt.Errorf("the Authorization header has a malformed field %.40q", field)
		}
		values[name] = unquoted
	}
	if values["version"] != version || values["algorithm"] != algorithm {
		return nil, fmt.Errorf("version %q and algorithm %q of the signature are not supported", values["version"], values["algorithm"])
	}
	signature, err := base64.StdEncoding.DecodeString(values["signature"])
	if err != nil {
		return nil, fmt.Errorf("decode signature: %w", err)
	}
	return &parameters{keyID: values["keyId"], headers: strings.Fields(values["headers"]), signature: signature}, nil
}

// covers checks the signed headers of a request.
func (p *parameters) covers(method string) error {
	need := always
	if method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
		need = slices.Concat(always, withBody)
	}
	for _, name := range need {
		if !slices.Contains(p.headers, name) {
			return fmt.Errorf("header %s is not signed", name)
		}
	}
	return nil
}

func (v *Verifier) checkDate(r *http.Request, signed []string) error {
	name := "date"
	if slices.Contains(signed, "x-date") {
		name = "x-date"
	}
	if !slices.Contains(signed, name) {
		return errors.New("header date is not signed")
	}
	at, err := http.ParseTime(r.Header.Get(name))
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	if skew := v.Now().Sub(at).Abs(); skew > v.Skew {
		return fmt.Errorf("the clock of the client is wrong by %s", skew.Round(time.Second))
	}
	return nil
}

func checkBody(r *http.Request, body []byte) error {
	sum := sha256.Sum256(body)
	if r.Header.Get("X-Content-Sha256") != base64.StdEncoding.EncodeToString(sum[:]) {
		return errors.New("x-content-sha256 does not match the body")
	}
	if r.ContentLength != int64(len(body)) {
		return errors.New("content-length does not match the body")
	}
	return nil
}

// signingString returns the text that the client signed.
func signingString(r *http.Request, headers []string) string {
	lines := make([]string, 0, len(headers))
	for _, name := range headers {
		var value string
		switch name {
		case target:
			value = strings.ToLower(r.Method) + " " + r.RequestURI
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		default:
			value = r.Header.Get(name)
		}
		lines = append(lines, name+": "+value)
	}
	return strings.Join(lines, "\n")
}
