package api

import (
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"slices"
	"strings"
)

// headerDigest is the trailer with an answer's digest (RFC 9530).
const headerDigest = "Content-Digest"

// digested returns a handler that sends the digest of the answer in a trailer, if the client accepts trailers.
func digested(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !takesTrailers(r) {
			h(w, r)
			return
		}
		w.Header().Set("Trailer", headerDigest)
		d := &digestWriter{ResponseWriter: w, hash: sha256.New()}
		h(d, r)
		w.Header().Set(headerDigest, "sha-256=:"+base64.StdEncoding.EncodeToString(d.hash.Sum(nil))+":")
	}
}

func takesTrailers(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Te"), func(codings string) bool {
		return slices.ContainsFunc(strings.Split(codings, ","), func(c string) bool { return strings.EqualFold(strings.TrimSpace(c), "trailers") })
	})
}

// digestWriter writes an answer and computes its hash.
type digestWriter struct {
	http.ResponseWriter
	hash hash.Hash
}

// Write implements http.ResponseWriter.
func (w *digestWriter) Write(b []byte) (int, error) {
	w.hash.Write(b)
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (w *digestWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
