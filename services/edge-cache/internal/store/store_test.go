package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/wire"
)

// noObserver counts nothing.
type noObserver struct{}

func (noObserver) CountEvent(string, EventType)                   {}
func (noObserver) ObserveReprojection(string, int, time.Duration) {}
func (noObserver) CountHistoryReset(string)                       {}

// memory is a journal that survives a restart.
type memory map[string]Record

func (m memory) Append(records ...Record) error {
	for _, r := range records {
		key := strconv.Itoa(int(r.Type)) + r.Key
		if r.Value == nil {
			delete(m, key)
			continue
		}
		r.Value = slices.Clone(r.Value)
		m[key] = r
	}
	return nil
}

// world is a store, and an oracle of what its reader must see.
type world struct {
	t       *testing.T
	r       *rand.Rand
	store   *Store
	virtual bool
	journal memory
	rv      uint64
	objects map[string]string // upstream: key to node
	rvs     map[string]uint64
	members map[string]struct{}

	cursor *Cursor
	seen   map[string]*Object
	last   uint64
}

func newStoreWorld(t *testing.T, seed uint64, virtual bool) *world {
	t.Helper()
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), virtual: virtual, journal: memory{}, rv: 100, objects: map[string]string{},
		rvs: map[string]uint64{}, members: map[string]struct{}{"n0": {}},
	}
	w.start()
	require.NoError(t, w.store.BeginReplacement().Commit(w.rv))
	w.list()
	return w
}

func (w *world) start() {
	p := Params{ID: "slices", Virtual: w.virtual, Journal: w.journal, Observer: noObserver{}, Log: zap.NewNop()}
	if w.virtual {
		p.Projection = w.project
	}
	w.store = New(p)
}

// project shows objects of members only.
func (w *world) project(_ string, object []byte) ([]byte, []uint32, bool, error) {
	meta, err := wire.ParseMeta(wire.Protobuf, object)
	_, member := w.members[meta.Labels["node"]]
	return object, []uint32{hash(meta.Labels["node"])}, member, err
}

func hash(node string) uint32 { return uint32(node[1]) }

func object(t *testing.T, key, node string, rv uint64) []byte {
	t.Helper()
	s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: key, Namespace: "ns", ResourceVersion: strconv.FormatUint(rv, 10),
		Labels: map[string]string{"node": node, "at": strconv.FormatUint(rv, 10)},
	}}
	raw, err := s.Marshal()
	require.NoError(t, err)
	return raw
}

func (w *world) key() string  { return fmt.Sprintf("k%d", w.r.IntN(12)) }
func (w *world) node() string { return fmt.Sprintf("n%d", w.r.IntN(4)) }

// change changes the API server.
func (w *world) change() (key string, raw []byte, deleted bool) {
	w.rv += 1 + w.r.Uint64N(3)
	key = w.key()
	if node, exists := w.objects[key]; exists && w.r.IntN(3) == 0 {
		delete(w.objects, key)
		delete(w.rvs, key)
		return key, object(w.t, key, node, w.rv), true
	}
	w.objects[key], w.rvs[key] = w.node(), w.rv
	return key, object(w.t, key, w.objects[key], w.rv), false
}

func (w *world) step() {
	switch n := w.r.IntN(20); {
	case n == 0:
		w.relist()
	case n == 1:
		w.restart()
	case n == 2:
		require.NoError(w.t, w.store.ApplyBookmark(w.rv))
	case n < 6 && w.virtual:
		node := w.node()
		if _, is := w.members[node]; is {
			delete(w.members, node)
		} else {
			w.members[node] = struct{}{}
		}
		_, err := w.store.ReprojectNodes(hash(node))
		require.NoError(w.t, err)
	default:
		_, raw, deleted := w.change()
		if deleted {
			require.NoError(w.t, w.store.RemoveObject(raw))
		} else {
			require.NoError(w.t, w.store.PutObject(raw))
		}
	}
}

// relist lets the store miss some events, and list.
func (w *world) relist() {
	for range w.r.IntN(12) {
		w.change()
	}
	replacement := w.store.BeginReplacement()
	for key, node := range w.objects {
		require.NoError(w.t, replacement.AddObject(object(w.t, key, node, w.rvs[key])))
	}
	require.NoError(w.t, replacement.Commit(w.rv))
}

// restart restores the store from what the journal holds. The pool may have changed before.
func (w *world) restart() {
	if w.virtual && w.r.IntN(2) == 0 {
		w.members[w.node()] = struct{}{}
	}
	w.start()
	for _, r := range w.journal {
		require.NoError(w.t, w.store.RestoreRecord(r))
	}
	require.NoError(w.t, w.store.FinishRestore(nil))
	w.resume()
}

func (w *world) list() {
	snapshot, cursor, err := w.store.ListAndWatch()
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, snapshot.RV, w.last, "the version fell")
	w.cursor, w.last, w.seen = cursor, snapshot.RV, map[string]*Object{}
	for _, o := range snapshot.Objects {
		w.seen[o.Key] = o
	}
}

// resume watches from the last version that the reader has.
func (w *world) resume() {
	cursor, err := w.store.WatchFrom(w.last)
	if errors.Is(err, ErrExpired) {
		w.list()
		return
	}
	require.NoError(w.t, err)
	w.cursor = cursor
}

// read reads all events, and breaks the connection between two of them now and then.
func (w *world) read() {
	for {
		events, err := w.cursor.readPending()
		if errors.Is(err, ErrExpired) {
			w.list()
			return
		}
		require.NoError(w.t, err)
		for _, e := range events {
			w.apply(e)
			if w.r.IntN(4) == 0 {
				w.resume()
				break
			}
		}
		if rv, all := w.cursor.BookmarkVersion(); all {
			require.GreaterOrEqual(w.t, rv, w.last, "a bookmark fell")
			if w.virtual {
				w.last = rv
			}
			return
		}
	}
}

func (w *world) apply(e Event) {
	require.Greater(w.t, e.Object.RV, w.last, "the version did not rise")
	w.last = e.Object.RV
	had := w.seen[e.Object.Key]
	require.Equal(w.t, e.Type == Added, had == nil, "%s of %s", e.Type, e.Object.Key)
	meta, err := wire.ParseMeta(wire.Protobuf, e.Object.Data)
	require.NoError(w.t, err)
	require.Equal(w.t, strconv.FormatUint(e.Object.RV, 10), meta.ResourceVersion)
	if e.Type == Deleted {
		delete(w.seen, e.Object.Key)
		return
	}
	w.seen[e.Object.Key] = e.Object
}

// check compares what the reader and a list see with the oracle.
func (w *world) check() {
	want := map[string]string{}
	for key, node := range w.objects {
		if _, member := w.members[node]; member || !w.virtual {
			want["ns/"+key] = node + "@" + strconv.FormatUint(w.rvs[key], 10)
		}
	}
	listed, _, err := w.store.ListAndWatch()
	require.NoError(w.t, err)
	require.Equal(w.t, want, w.texts(slices.Values(listed.Objects)), "list")
	require.Equal(w.t, want, w.texts(maps.Values(w.seen)), "reader")
}

func (w *world) texts(objects func(func(*Object) bool)) map[string]string {
	texts := map[string]string{}
	for o := range objects {
		meta, err := wire.ParseMeta(wire.Protobuf, o.Data)
		require.NoError(w.t, err)
		texts[o.Key] = meta.Labels["node"] + "@" + meta.Labels["at"]
	}
	return texts
}

// FuzzReaderEqualsTheOracle applies random operations, restarts among them. Versions never fall, and no event is lost.
func FuzzReaderEqualsTheOracle(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newStoreWorld(t, seed, seed%2 == 0)
		for range 100 {
			w.step()
			if w.r.IntN(3) == 0 {
				w.read()
				w.check()
			}
		}
	})
}

func TestVersionsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	w := newStoreWorld(t, 1, true)
	for _, rv := range []uint64{math.MaxInt64, math.MaxInt64/scale + 1} {
		raw := object(t, "a", "n0", rv)
		require.ErrorContains(t, w.store.PutObject(raw), "too large")
		require.ErrorContains(t, w.store.RemoveObject(raw), "too large")
		require.ErrorContains(t, w.store.ApplyBookmark(rv), "too large")
		require.ErrorContains(t, w.store.BeginReplacement().Commit(rv), "too large")
	}
	w.list() // at no lower version
}

// A reader that is cut off between the deletions of one list gets the others after it.
func TestDeletionsOfAListHaveVersionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newStoreWorld(t, 1, false)
	for rv := uint64(101); rv < 104; rv++ {
		require.NoError(t, w.store.PutObject(object(t, fmt.Sprint("k", rv), "n0", rv)))
	}
	w.rv = 110
	w.list()
	require.NoError(t, w.store.BeginReplacement().Commit(110))
	events, err := w.cursor.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, events, 3)
	cursor, err := w.store.WatchFrom(events[0].Object.RV)
	require.NoError(t, err)
	rest, err := cursor.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, events[1:], rest)
}

// TestBehind compares a store with the versions of the API server.
func TestBehind(t *testing.T) {
	t.Parallel()
	w := newStoreWorld(t, 1, false)
	require.NoError(t, w.store.PutObject(object(t, "a", "n0", 110)))
	require.NoError(t, w.store.PutObject(object(t, "b", "n0", 120)))
	tests := []struct {
		name string
		give Versions
		want bool
	}{
		{name: "the same", give: Versions{RV: 500, Objects: map[string]uint64{"ns/a": 110, "ns/b": 120}}},
		{name: "an older moment", give: Versions{RV: 120, Objects: map[string]uint64{"ns/a": 110, "ns/c": 90}}},
		{name: "a new object", give: Versions{RV: 500, Objects: map[string]uint64{"ns/a": 110, "ns/b": 120, "ns/c": 130}}, want: true},
		{name: "a change", give: Versions{RV: 500, Objects: map[string]uint64{"ns/a": 130, "ns/b": 120}}, want: true},
		{name: "a deletion", give: Versions{RV: 500, Objects: map[string]uint64{"ns/b": 120}}, want: true},
		{name: "a later version here", give: Versions{RV: 500, Objects: map[string]uint64{"ns/a": 105, "ns/b": 120}}},
		{name: "everything deleted", give: Versions{RV: 500}, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, w.store.IsBehind(tt.give))
		})
	}
}

// TestBehindWithoutInvisibleObjects lacks objects that nobody may see, and is not behind for that.
func TestBehindWithoutInvisibleObjects(t *testing.T) {
	t.Parallel()
	wanted := func(key string, object []byte) ([]byte, []uint32, bool, error) {
		return object, nil, key == "ns/wanted", nil
	}
	s := New(Params{ID: "secrets", Virtual: true, Discard: true, Projection: wanted, Observer: noObserver{}, Log: zap.NewNop()})
	require.NoError(t, s.BeginReplacement().Commit(100))
	require.False(t, s.IsBehind(Versions{RV: 200, Objects: map[string]uint64{"ns/other": 150}}))
	require.True(t, s.IsBehind(Versions{RV: 200, Objects: map[string]uint64{"ns/wanted": 150}}))
}

// TestPackedValuesSurvive packs values of all sizes and contents, and refuses damaged ones without a panic.
func TestPackedValuesSurvive(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	s := New(Params{
		Observer: noObserver{}, Projection: func(_ string, o []byte) ([]byte, []uint32, bool, error) { return o, nil, true, nil },
	})
	for size := 1; size < 1<<20; size = size*3 + r.IntN(5) {
		give := make([]byte, size)
		for i := range give {
			give[i] = byte(r.IntN(1 + size%7*40))
		}
		value := s.packObject(give)
		require.LessOrEqual(t, len(value), headerSize+size+size/100+64)
		got, err := unpackObject(value)
		require.NoError(t, err)
		require.Equal(t, give, got)
		for range 20 {
			damaged := slices.Clone(value)
			damaged[headerSize+r.IntN(len(value)-headerSize)] ^= 1 << r.IntN(8)
			if got, err := unpackObject(damaged); err == nil {
				require.LessOrEqual(t, len(got), maxUnpacked)
			}
		}
	}
	_, err := unpackObject([]byte("short"))
	require.Error(t, err)
	value := s.packObject(make([]byte, packAbove))
	value[offsetPacking] = 9
	_, err = unpackObject(value)
	require.ErrorContains(t, err, "unknown packing")
}

func TestSlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	w := newStoreWorld(t, 1, false)
	slow := w.cursor
	w.list()
	for rv := uint64(101); rv < 101+historyLimit+2; rv++ {
		require.NoError(t, w.store.PutObject(object(t, "k", "n0", rv)))
		if rv%maxBatch == 0 {
			_, err := w.cursor.Next(t.Context())
			require.NoError(t, err, "a reader that keeps up is not cut off")
		}
	}
	require.LessOrEqual(t, len(w.store.history.events), historyLimit)
	_, err := slow.Next(context.Background())
	require.ErrorIs(t, err, ErrExpired)
	_, err = w.store.WatchFrom(100)
	require.ErrorIs(t, err, ErrExpired)
}

// TestOnRemove is called after objects were removed, and not after other changes.
func TestOnRemove(t *testing.T) {
	t.Parallel()
	removals, shown := 0, true
	s := New(Params{
		ID: "slices", Virtual: true, Discard: true, Journal: memory{}, Observer: noObserver{}, Log: zap.NewNop(),
		OnRemove:   func() { removals++ },
		Projection: func(_ string, object []byte) ([]byte, []uint32, bool, error) { return object, nil, shown, nil },
	})
	require.NoError(t, s.BeginReplacement().Commit(1))
	require.NoError(t, s.PutObject(object(t, "a", "n0", 2)))
	require.NoError(t, s.PutObject(object(t, "a", "n1", 3)))
	require.NoError(t, s.PutObject(object(t, "b", "n0", 4)))
	require.Zero(t, removals)
	require.NoError(t, s.RemoveObject(object(t, "b", "n0", 5)))
	require.Equal(t, 1, removals)
	shown = false
	_, err := s.ReprojectKeys("ns/a")
	require.NoError(t, err)
	require.Equal(t, 2, removals)
	require.NoError(t, s.PutObject(object(t, "a", "n0", 6)))
	require.Equal(t, 2, removals, "it was not stored")
}
