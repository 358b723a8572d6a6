package request

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

func TestWantedHeaders(t *testing.T) {
	t.Parallel()
	var w WantedHeaders
	assert.NotNil(t, w.FindHeader([]byte("x-llm-d-inference-objective")))
	assert.Nil(t, w.FindHeader([]byte("x-session-id")))
	w.SetFurther([]string{"x-session-id", "x-prefiller-host-port"})
	for name, want := range map[string]bool{"x-session-id": true, "x-llm-d-inference-objective": true, "x-session-ie": false, "accept": false} {
		if h := w.FindHeader([]byte(name)); want {
			assert.Equal(t, name, h.Name)
		} else {
			assert.Nil(t, h, name)
		}
	}
	assert.True(t, w.FindHeader([]byte("x-prefiller-host-port")).Private, "the configuration cannot publish it")
	assert.Len(t, w.ListHeaders(), len(api.Controls())+1)
	assert.Equal(t, "X-Session-Id", w.ListHeaders()[len(api.Controls())].Canonical)
}

func TestIncomingHeaders_AddHeader(t *testing.T) {
	t.Parallel()
	var w WantedHeaders
	var in IncomingHeaders
	for _, h := range []api.Header{{Name: "x-prefiller-host-port", Value: "a"}, {Name: "content-type", Value: "b"}, {Name: "x-prefiller-host-port", Value: "c"}} {
		in.AddHeader(w.FindHeader([]byte(h.Name)), h.Value)
	}
	assert.Equal(t, IncomingHeaders{
		Headers: api.Headers{{Name: "x-prefiller-host-port", Value: "a"}, {Name: "content-type", Value: "b"}, {Name: "x-prefiller-host-port", Value: "c"}},
		Private: []string{"x-prefiller-host-port"},
	}, in)
}
