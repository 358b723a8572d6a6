package store

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/wire"
)

func newJSONStore() *Store {
	return New(Params{ID: "things", Format: wire.JSON, Journal: memory{}, Observer: noObserver{}, Log: zap.NewNop()})
}

func thing(name string, rv uint64) []byte {
	return fmt.Appendf(nil, `{"kind":"Thing","metadata":{"namespace":"ns","name":%q,"resourceVersion":"%d"}}`, name, rv)
}

// TestWaitSynced ends with the first list, and with its context.
func TestWaitSynced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newJSONStore()
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, s.WaitSynced(limited), context.DeadlineExceeded)
		start := time.Now()
		time.AfterFunc(time.Second, func() { require.NoError(t, s.BeginReplacement().Commit(10)) })
		require.NoError(t, s.WaitSynced(t.Context()))
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, s.WaitSynced(t.Context()))
	})
}

// TestWaitSynced_AfterOnChange: a projection of another store depends on what OnChange makes of the first list.
func TestWaitSynced_AfterOnChange(t *testing.T) {
	t.Parallel()
	var told atomic.Bool
	s := New(Params{
		ID: "things", Format: wire.JSON, Journal: memory{}, Observer: noObserver{}, Log: zap.NewNop(), OnChange: func(map[string][]byte) {
			for range 1000 {
				runtime.Gosched() // whoever waits for the store goes on, unless it waits for this, too
			}
			told.Store(true)
		},
	})
	replacement := s.BeginReplacement()
	require.NoError(t, replacement.AddObject(thing("a", 5)))
	committed := make(chan error, 1)
	go func() { committed <- replacement.Commit(10) }()
	require.NoError(t, s.WaitSynced(t.Context()))
	require.True(t, told.Load())
	require.NoError(t, <-committed)
}

// TestWaitForVersions waits for the last event that a list has already, and no longer.
func TestWaitForVersions(t *testing.T) {
	t.Parallel()
	later := func(events ...func() error) {
		for i, event := range events {
			time.AfterFunc(time.Duration(i+1)*time.Second, func() { _ = event() })
		}
	}
	tests := []struct {
		name     string
		versions map[string]uint64
		events   func(s *Store) []func() error // one a second
		want     time.Duration
		wantErr  error
	}{
		{
			name: "a change and a new object", versions: map[string]uint64{"ns/a": 20, "ns/b": 21},
			events: func(s *Store) []func() error {
				return []func() error{
					func() error { return s.PutObject(thing("a", 20)) }, func() error { return s.PutObject(thing("b", 21)) },
					func() error { return s.PutObject(thing("c", 40)) },
				}
			},
			want: 2 * time.Second,
		},
		{
			name: "a deletion", versions: map[string]uint64{},
			events: func(s *Store) []func() error {
				return []func() error{func() error { return s.ApplyBookmark(15) }, func() error { return s.RemoveObject(thing("a", 22)) }}
			},
			want: 2 * time.Second,
		},
		{
			name: "an object that came and went before the list", versions: map[string]uint64{"ns/a": 20},
			events: func(s *Store) []func() error {
				return []func() error{
					func() error { return s.PutObject(thing("gone", 18)) }, func() error { return s.PutObject(thing("a", 20)) },
					func() error { return s.RemoveObject(thing("gone", 25)) },
				}
			},
			want: 3 * time.Second,
		},
		{
			name: "a bookmark", versions: map[string]uint64{"ns/a": 20},
			events: func(s *Store) []func() error { return []func() error{func() error { return s.ApplyBookmark(30) }} },
			want:   time.Second,
		},
		{
			name: "too few events", versions: map[string]uint64{"ns/a": 20},
			events: func(s *Store) []func() error { return []func() error{func() error { return s.ApplyBookmark(29) }} },
			want:   time.Minute, wantErr: context.DeadlineExceeded,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newJSONStore()
				replacement := s.BeginReplacement()
				require.NoError(t, replacement.AddObject(thing("a", 10)))
				require.NoError(t, replacement.Commit(10))
				start := time.Now()
				later(tt.events(s)...)
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.ErrorIs(t, s.WaitForVersions(limited, Versions{RV: 30, Objects: tt.versions}), tt.wantErr)
				require.Equal(t, tt.want, time.Since(start))
				require.Equal(t, tt.wantErr != nil, s.IsBehind(Versions{RV: 30, Objects: tt.versions}))
			})
		})
	}
}
