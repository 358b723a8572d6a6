package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadAddresses(t *testing.T) {
	t.Parallel()
	const log = `{"level":"info","message":"Started listening","address":"127.0.0.1:1","flag":"metrics-bind-address"}
{"level":"info","message":"Started listening","address":"127.0.0.1:2","flag":"health-probe-bind-address"}
no JSON
{"level":"warn","message":"Responder does not work","status":404,"error":"x"}
{"level":"info","message":"Serving answers of requests without backends","status":404,"address":"127.0.0.1:3"}
`
	const further = `{"level":"info","message":"Serving answers of requests without backends","status":500,"address":"127.0.0.1:4"}`
	file := filepath.Join(t.TempDir(), "program.log")
	for text, want := range map[string]addresses{
		log:                {health: "127.0.0.1:2", notFound: "127.0.0.1:3"},
		log + further[:40]: {health: "127.0.0.1:2", notFound: "127.0.0.1:3"},
		log + further:      {health: "127.0.0.1:2", notFound: "127.0.0.1:3", noBackends: "127.0.0.1:4"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := readAddresses(file)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := readAddresses(file + ".none")
	require.ErrorContains(t, err, "read log of the program: ")
}
