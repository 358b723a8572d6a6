package conditions

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 999, time.FixedZone("", 7200))

const (
	metadata = `"metadata": {"resourceVersion": "7"}`
	ours     = `{"type":"Exposed","status":"True","severity":"Info","lastTransitionTime":"2026-05-04T10:00:00Z","reason":"Programmed","message":"http://a/ \"b\""}`
	foreign  = `{"type":"Ready","status":"True","lastTransitionTime":null,"more":{"a":["b"]}}`
)

// document is an object with conditions.
type document struct {
	Metadata struct{ ResourceVersion string }
	Status   *struct{ Conditions *[]Duck }
}

// read returns what a patch of a document depends on.
func read(t *testing.T, text string) Status {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	s := Status{ResourceVersion: d.Metadata.ResourceVersion, Exists: d.Status != nil}
	if s.Exists && d.Status.Conditions != nil {
		s.Listed, s.Conditions = true, *d.Status.Conditions
	}
	return s
}

// apply applies a patch as the API server does.
func apply(t *testing.T, text string, patch []byte) string {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	require.NoError(t, err)
	after, err := decoded.Apply([]byte(text))
	require.NoError(t, err)
	return string(after)
}

func TestPatchDuck(t *testing.T) {
	t.Parallel()
	var c Duck
	require.NoError(t, json.Unmarshal([]byte(ours), &c))
	tests := []struct{ name, give, want string }{
		{name: "no status", give: `{` + metadata + `}`, want: `{` + metadata + `, "status": {"conditions": [` + ours + `]}}`},
		{name: "a null status", give: `{` + metadata + `, "status": null}`, want: `{` + metadata + `, "status": {"conditions": [` + ours + `]}}`},
		{name: "no conditions", give: `{` + metadata + `, "status": {"url": "http://x"}}`, want: `{` + metadata + `, "status": {"url": "http://x", "conditions": [` + ours + `]}}`},
		{name: "null conditions", give: `{` + metadata + `, "status": {"conditions": null}}`, want: `{` + metadata + `, "status": {"conditions": [` + ours + `]}}`},
		{name: "an empty list", give: `{` + metadata + `, "status": {"conditions": []}}`, want: `{` + metadata + `, "status": {"conditions": [` + ours + `]}}`},
		{name: "other conditions", give: `{` + metadata + `, "status": {"conditions": [` + foreign + `], "components": {}}}`, want: `{` + metadata + `, "status": {"conditions": [` + foreign + `,` + ours + `], "components": {}}}`},
		{
			name: "another status and a seventh field",
			give: `{` + metadata + `, "status": {"conditions": [` + foreign + `,{"type":"Exposed","status":"False","observedGeneration":3},` + foreign + `]}}`,
			want: `{` + metadata + `, "status": {"conditions": [` + foreign + `,` + ours + `,` + foreign + `]}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := apply(t, tt.give, PatchDuck(read(t, tt.give), c))
			assert.JSONEq(t, tt.want, got)
			assert.Nil(t, PatchDuck(read(t, got), c), "it is written once")
		})
	}
}

func TestPatchDuckWritesEachDifference(t *testing.T) {
	t.Parallel()
	c := Duck{Type: "Exposed", Status: "True", Severity: "Info", LastTransitionTime: "2026-05-04T10:00:00Z", Reason: "Programmed", Message: "m"}
	changes := map[string]func(*Duck){
		"status": func(c *Duck) { c.Status = "False" }, "severity": func(c *Duck) { c.Severity = "" },
		"time": func(c *Duck) { c.LastTransitionTime = "2026-05-04T10:00:01Z" }, "reason": func(c *Duck) { c.Reason = "x" },
		"message": func(c *Duck) { c.Message = "x" },
	}
	for field, change := range changes {
		before := c
		change(&before)
		assert.NotNil(t, PatchDuck(Status{Conditions: []Duck{before}}, c), field)
	}
}

func TestPatchIsForTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	var operations []map[string]any
	require.NoError(t, json.Unmarshal(PatchDuck(Status{ResourceVersion: "41"}, Duck{}), &operations))
	assert.Equal(t, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": "41"}, operations[0])
}

func TestSetDuck(t *testing.T) {
	t.Parallel()
	const long = "2020-01-01T00:00:00Z"
	next := Duck{Type: "Exposed", Status: "True", Reason: "Programmed"}
	tests := []struct {
		name   string
		before *Duck
		want   string
	}{
		{name: "no condition before", want: "2026-05-04T10:00:00Z"},
		{name: "the same status with another reason", before: &Duck{Status: "True", Reason: "Old", LastTransitionTime: long}, want: long},
		{name: "another status", before: &Duck{Status: "Unknown", Reason: "Programmed", LastTransitionTime: long}, want: "2026-05-04T10:00:00Z"},
		{name: "the same status without a time", before: &Duck{Status: "True"}, want: "2026-05-04T10:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := next
			want.LastTransitionTime = tt.want
			assert.Equal(t, want, SetDuck(tt.before, next, now))
		})
	}
}

func TestFindDuck(t *testing.T) {
	t.Parallel()
	all := []Duck{{Type: "Ready"}, {Type: "Exposed", Message: "ours"}}
	assert.Same(t, &all[1], FindDuck(all, "Exposed"))
	assert.Nil(t, FindDuck(all, "Other"))
}

func TestSetCutsLongMessages(t *testing.T) {
	t.Parallel()
	for pad := range 3 {
		message := Set(nil, metav1.Condition{Message: strings.Repeat("a", pad) + strings.Repeat("€", 20000)}, now).Message
		assert.LessOrEqual(t, len(message), 32768)
		assert.True(t, strings.HasSuffix(message, "€..."))
		assert.True(t, utf8.ValidString(message))
	}
}

func TestTruncateMessage(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "empty"},
		{name: "short", give: "why", want: "why"},
		{name: "the maximum", give: strings.Repeat("a", 1024), want: strings.Repeat("a", 1024)},
		{name: "one more", give: strings.Repeat("a", 1025), want: strings.Repeat("a", 1021) + "..."},
		{name: "within a character", give: strings.Repeat("a", 1019) + strings.Repeat("€", 3), want: strings.Repeat("a", 1019) + "..."},
		{name: "after a character", give: strings.Repeat("a", 1018) + strings.Repeat("€", 3), want: strings.Repeat("a", 1018) + "€..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := TruncateMessage(tt.give, 1024)
			assert.Equal(t, tt.want, got)
			assert.LessOrEqual(t, len(got), 1024)
			assert.True(t, utf8.ValidString(got))
		})
	}
}
