package body

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type object struct {
	Text   *string                   `json:"text"`
	Object *object                   `json:"object"`
	List   []*object                 `json:"list"`
	Map    map[string]*object        `json:"map"`
	Values map[string]map[string]any `json:"values"`

	Embedded
}

// Embedded has fields of the object that embeds it.
type Embedded struct {
	Others map[string]*object `json:"others"`
}

func TestNull(t *testing.T) {
	t.Parallel()
	for text, path := range map[string]string{
		`null`:                                "the body is null",
		` null `:                              "the body is null",
		`{"list": [null]}`:                    "list[0] is null",
		`{"list": [{}, {"list": [null]}]}`:    "list[1].list[0] is null",
		`{"map": {"a": null}}`:                "map.a is null",
		`{"object": {"map": {"a": null}}}`:    "object.map.a is null",
		`{"others": {"a": null}}`:             "others.a is null",
		`{"values": {"a": null}}`:             "values.a is null",
		`{"values": {"a": {"b": null}}}`:      "values.a.b is null",
		`{"values": {"a": {"b": [1, null]}}}`: "values.a.b[1] is null",
	} {
		for _, decoder := range []func([]byte, any) error{Decode, DecodeStrict} {
			var null *NullError
			require.ErrorAs(t, decoder([]byte(text), &object{}), &null, text)
			assert.Equal(t, path, null.Error(), text)
		}
	}
	for _, text := range []string{`{}`, `{"text": null, "object": null, "list": null, "map": null, "values": null, "others": null}`, `{"list": [{"text": null}]}`} {
		require.NoError(t, Decode([]byte(text), &object{}), text)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	var wrong *json.UnmarshalTypeError
	require.ErrorAs(t, Decode([]byte(`{"list": 1}`), &object{}), &wrong)
	require.ErrorContains(t, Decode([]byte(`{} {}`), &object{}), "text after the body")
	require.ErrorContains(t, Decode([]byte(`{} x`), &object{}), "text after the body")
	require.Error(t, Decode(nil, &object{}))
	require.NoError(t, Decode([]byte(`{"unknown": 1}`), &object{}))
	require.ErrorContains(t, DecodeStrict([]byte(`{"unknown": 1}`), &object{}), "unknown field")

	var list []object
	require.NoError(t, DecodeStrict([]byte(`[{"text": "a"}]`), &list))
	require.Len(t, list, 1)
	var null *NullError
	require.ErrorAs(t, DecodeStrict([]byte(`null`), &list), &null)
	var raw json.RawMessage
	require.ErrorAs(t, DecodeStrict([]byte(`null`), &raw), &null)
	require.NoError(t, DecodeStrict([]byte(`{"a": null}`), &raw))
	assert.JSONEq(t, `{"a": null}`, string(raw))
}
