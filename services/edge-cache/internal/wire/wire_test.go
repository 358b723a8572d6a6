package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestParseMetaOfJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       Meta
		wantErr    string
	}{
		{name: "all fields", give: `{"metadata":{"namespace":"a","name":"b","uid":"u","resourceVersion":"7","labels":{"k":"v"}}}`,
			want: Meta{Namespace: "a", Name: "b", ResourceVersion: "7", Labels: map[string]string{"k": "v"}}},
		{
			name: "a field of the author that looks like metadata",
			give: `{"metadata":{"namespace":"a","name":"b"},"Metadata":{"namespace":"victim","name":"c","resourceVersion":"9"}}`,
			want: Meta{Namespace: "a", Name: "b"},
		},
		{name: "names in another case", give: `{"metadata":{"name":"b","Name":"c"}}`, want: Meta{Name: "b"}},
		{name: "no metadata", give: `{}`, wantErr: "decode metadata"},
		{name: "metadata twice", give: `{"metadata":{"name":"b"},"metadata":null}`, wantErr: "no metadata"},
		{name: "no name", give: `{"metadata":{}}`, wantErr: "no metadata.name"},
		{name: "a number as name", give: `{"metadata":{"name":1}}`, wantErr: "metadata.name"},
		{name: "not JSON", give: `{`, wantErr: "decode object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseMeta(JSON, []byte(tt.give))
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestEditsRefuseObjectsWithoutMetadata(t *testing.T) {
	t.Parallel()
	for _, object := range []string{`{"metadata":{"name":"a"},"metadata":null}`, `{"metadata":null}`, `null`, `[]`, ``} {
		_, err := WithResourceVersion(JSON, []byte(object), 7)
		require.Error(t, err, object)
		_, err = StripMetadata(JSON, []byte(object))
		require.Error(t, err, object)
	}
}

func TestParseRV(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "0", "01", "-1", "+1", " 1", "1.0", "0x1", "1e3", "9223372036854775808", "x"} {
		_, err := ParseRV(text)
		require.Error(t, err, text)
	}
	for _, want := range []uint64{1, 42, 1<<63 - 1} {
		got, err := ParseRV(strconv.FormatUint(want, 10))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestEventTypeIsOfTheObject(t *testing.T) {
	t.Parallel()
	r := NewEventReader(JSON,
		bytes.NewBufferString(`{"type":"ADDED","object":{"apiVersion":"a/v1","kind":"Foo","Kind":"Bar","metadata":{"name":"x"}}}`), 1024)
	e, err := r.Next()
	require.NoError(t, err)
	assert.Equal(t, "Foo", e.Kind)
	assert.Equal(t, "a/v1", e.APIVersion)
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestEventReaderRefusesLongFrames(t *testing.T) {
	t.Parallel()
	for _, length := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0, 0, 4, 1}} {
		_, err := NewEventReader(Protobuf, bytes.NewReader(length), 1024).Next()
		require.ErrorIs(t, err, errTooLarge)
	}
	_, err := NewEventReader(Protobuf, bytes.NewReader([]byte{0, 0, 1, 0, 1}), 1024).Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// randomSlice returns a valid EndpointSlice.
func randomSlice(r *rand.Rand) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns" + strconv.Itoa(r.IntN(3)), Name: "s" + strconv.Itoa(r.IntN(9)), UID: types.UID(strconv.Itoa(r.IntN(99))),
		ResourceVersion: strconv.Itoa(1 + r.IntN(1e6)), Generation: r.Int64N(5),
	}}
	if r.IntN(2) == 0 {
		s.Labels = map[string]string{discoveryv1.LabelServiceName: "svc", "z": strconv.Itoa(r.IntN(9))}
	}
	if r.IntN(2) == 0 {
		s.Annotations = map[string]string{lastApplied: "{}", lastChangeTrigger: "then"}
	}
	if r.IntN(2) == 0 {
		s.Annotations = map[string]string{"other": "kept", lastApplied: "{}"}
	}
	for range r.IntN(3) {
		s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Manager: "m", Operation: metav1.ManagedFieldsOperationApply})
	}
	for i := range r.IntN(20) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0." + strconv.Itoa(i)}})
	}
	return s
}

func marshal(t *testing.T, s *discoveryv1.EndpointSlice) []byte {
	t.Helper()
	raw, err := s.Marshal()
	require.NoError(t, err)
	return raw
}

// FuzzEdits compares the edits of encoded slices with those of the typed API, byte for byte.
func FuzzEdits(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomSlice(r)
		give := marshal(t, s)
		before := bytes.Clone(give)
		rv := 1 + r.Uint64N(1<<62)

		m, err := ParseMeta(Protobuf, give)
		require.NoError(t, err)
		require.Equal(t, Meta{s.Namespace, s.Name, s.ResourceVersion, s.Labels}, m)

		want := s.DeepCopy()
		want.ResourceVersion = strconv.FormatUint(rv, 10)
		got, err := WithResourceVersion(Protobuf, give, rv)
		require.NoError(t, err)
		require.Equal(t, marshal(t, want), got)

		want = s.DeepCopy()
		want.ManagedFields = nil
		delete(want.Annotations, lastApplied)
		got, err = StripMetadata(Protobuf, give)
		require.NoError(t, err)
		require.Equal(t, marshal(t, want), got)
		require.Equal(t, before, give, "an edit changed its input")
	})
}

// FuzzStrip feeds what a hostile API server may send to everything that reads it.
func FuzzStrip(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		s := randomSlice(r)
		raw, err := s.Marshal()
		require.NoError(f, err)
		text, err := json.Marshal(s)
		require.NoError(f, err)
		f.Add(raw)
		f.Add(text)
		f.Add(EncodeEnvelope("v1", "X", raw))
		f.Add(EncodeEvent("ADDED", "v1", "X", raw))
	}
	f.Add([]byte(`{"metadata":{"name":"a","resourceVersion":"1"},"metadata":null}`))
	f.Add([]byte(`{"metadata":{"name":"a","name":null,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"<"}}}`))
	f.Add([]byte(`{"kind":"L","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},null]}`))
	f.Fuzz(func(t *testing.T, give []byte) {
		before := bytes.Clone(give)
		for _, format := range []Format{Protobuf, JSON} {
			edits(t, format, give)
			streams(t, format, give)
		}
		require.Equal(t, before, give, "the input changed")
	})
}

func edits(t *testing.T, format Format, give []byte) {
	t.Helper()
	meta, metaErr := ParseMeta(format, give)
	stripped, err := StripMetadata(format, give)
	if err == nil {
		// JSON escapes a byte with six at most.
		require.LessOrEqual(t, len(stripped), 6*len(give)+16)
		again, err := ParseMeta(format, stripped)
		require.Equal(t, metaErr == nil, err == nil, "%v, %v", metaErr, err)
		require.Equal(t, meta, again)
	}
	if metaErr != nil {
		return
	}
	versioned, err := WithResourceVersion(format, give, 42)
	if err == nil {
		again, err := ParseMeta(format, versioned)
		require.NoError(t, err)
		require.Equal(t, "42", again.ResourceVersion)
	}
	if format == Protobuf {
		essence, err := ComparableContent(give)
		require.True(t, err != nil || len(essence) <= len(give))
		only, err := MetadataOnly(give)
		require.True(t, err != nil || len(only) <= len(give))
	}
}

func streams(t *testing.T, format Format, give []byte) {
	t.Helper()
	const limit = 256
	_, _ = ReadList(bytes.NewReader(give), ListParams{Format: format, MaxItem: limit, Item: func(item []byte) error {
		require.LessOrEqual(t, len(item), len(give))
		require.False(t, format == Protobuf && len(item) > limit, "an item exceeds its limit")
		return nil
	}})
	r := NewEventReader(format, bytes.NewReader(give), limit)
	for range len(give) + 2 {
		e, err := r.Next()
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(e.Object), len(give))
	}
	t.Fatal("the reader of events does not end")
}
