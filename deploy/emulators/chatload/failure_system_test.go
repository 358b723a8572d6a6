//go:build system

package chatload

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFailureClassesOfSockets(t *testing.T) {
	t.Parallel()
	for _, tt := range failures() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.handler)
			defer server.Close()
			tt.check(t, options(server.URL))
		})
	}
}

func TestConnectFailuresOfSockets(t *testing.T) {
	t.Parallel()
	const address = "http://127.0.0.1:1" // the system never chooses this port for another test
	_, results := run(t, options(address))
	assert.Equal(t, ClassConnect, results[0].Class)

	o := options(address)
	o.Client = &http.Client{Transport: &http.Transport{}}
	_, results = run(t, o)
	assert.Equal(t, ClassConnect, results[0].Class, "with the caller's own client")
}
