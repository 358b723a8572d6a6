package replicas

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/encoding/protodelim"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// process is a process with a state file and one pool.
type process struct {
	*SavedPool

	logs *observer.ObservedLogs
	stop func()
}

// startProcess runs a process with endpoints that have these UIDs.
func startProcess(t *testing.T, path string, uids ...string) *process {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	file := NewStateFile(zap.New(core), path, 1<<20)
	p := &process{SavedPool: file.JoinPool("pool", estimate.New(prefixindex.NewMemoryBudget(1<<20))), logs: logs}
	file.LoadCaches()
	var endpoints []*endpoint.Endpoint
	for _, uid := range uids {
		endpoints = append(endpoints, p.NewEndpoint(describe("a", uid), time.Now()))
	}
	p.SetEndpoints(endpoints)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		file.Run(ctx)
		close(done)
	}()
	p.stop = func() {
		cancel()
		<-done
	}
	return p
}

// learnCaches applies contents to endpoints, of which each has a page.
func (p *process) learnCaches() {
	view := p.NewReplica()
	for i, e := range p.endpoints {
		gauges := endpoint.Gauges{Blocks: 50_000, Queries: 700, Hits: 300, Counted: true}
		e.RecordSample(e.StartScrape(time.Now()), gauges)
		for n := range uint64(3) {
			view.ApplyEvent(estimate.Event{Kind: estimate.EventCached, Endpoint: e, Chain: []uint64{n + 1, uint64(100*i+100) + n}}, time.Now())
			view.ApplyEvent(estimate.Event{Kind: estimate.EventOccupied, Endpoint: e, Tokens: 160}, time.Now())
		}
	}
}

// The next process knows the same of the endpoints that it has, too, and nothing of others.
func TestStateFile_IsKnownToTheNextProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		first := startProcess(t, path, "1", "2")
		assert.Equal(t, []string{"Found no state file, started without contents of caches"}, first.messages())
		first.learnCaches()
		first.stop()
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())

		time.Sleep(maxStateAge)
		second := startProcess(t, path, "1", "3", "2")
		assert.Equal(t, []string{"Read contents of caches from the state file"}, second.messages())
		both := []*endpoint.Endpoint{second.endpoints[0], second.endpoints[2]}
		assert.Equal(t, withoutEndpoints(first.Contents(first.endpoints)), withoutEndpoints(second.Contents(both)))
		assert.Empty(t, second.Contents(second.endpoints[1:2]), "another pod at the same address")
		for i, e := range both {
			assert.Equal(t, first.SavedServer(first.endpoints[i]).Blocks, second.SavedServer(e).Blocks)
			blocks, capacity := second.CacheSize(e)
			assert.Equal(t, []int{36, 50_000}, []int{blocks, capacity})
		}
		second.stop()
	})
}

func (p *process) messages() []string {
	var all []string
	for _, l := range p.logs.All() {
		all = append(all, l.Message)
	}
	return all
}

func withoutEndpoints(events []estimate.Event) []estimate.Event {
	for i := range events {
		events[i].Endpoint = nil
	}
	return events
}

// A server that has restarted while no picker watched has an empty cache: its counters are lower than the last process saw.
func TestStateFile_ServerHasRestarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		first := startProcess(t, path, "1", "2")
		first.learnCaches()
		first.stop()
		second := startProcess(t, path, "1", "2")
		for i, queries := range []float64{701, 699} {
			e := second.endpoints[i]
			e.RecordSample(e.StartScrape(time.Now()), endpoint.Gauges{Queries: queries, Hits: 300, Counted: true})
		}
		blocks := make([]int, 2)
		for i, e := range second.endpoints {
			blocks[i], _ = second.CacheSize(e)
		}
		assert.Equal(t, []int{36, 0}, blocks)
		second.stop()
	})
}

// The file is written every saveInterval if something has changed, and a process that is killed loses only what came later.
func TestStateFile_IsWrittenAfterChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		p := startProcess(t, path, "1")
		time.Sleep(saveInterval + time.Second)
		assert.NoFileExists(t, path, "nothing is known")
		p.learnCaches()
		time.Sleep(saveInterval)
		written, err := os.ReadFile(path)
		require.NoError(t, err)
		time.Sleep(10 * saveInterval)
		unchanged, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, written, unchanged)
		p.learnCaches()
		time.Sleep(saveInterval)
		changed, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotEqual(t, written, changed)
		p.stop()
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		assert.Len(t, left, 1, "no other file stays")
	})
}

// A process that drains writes at once, and leaves the file to the next one as soon as that has written it.
func TestStateFile_IsTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		first := startProcess(t, path, "1")
		first.learnCaches()
		first.file.WriteSoon()
		synctest.Wait()
		require.FileExists(t, path)

		second := startProcess(t, path, "1")
		assert.Equal(t, []string{"Read contents of caches from the state file"}, second.messages())
		first.learnCaches()
		first.file.WriteSoon()
		synctest.Wait()
		second.learnCaches()
		time.Sleep(2 * saveInterval)
		written, err := os.ReadFile(path)
		require.NoError(t, err)
		first.learnCaches()
		first.stop()
		assert.Equal(t, "Left the state file to another process, which writes it", first.messages()[1])
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, written, left)
		second.learnCaches()
		second.stop()
		assert.Len(t, second.messages(), 1)
		left, err = os.ReadFile(path)
		require.NoError(t, err)
		assert.NotEqual(t, written, left)
	})
}

// A folder that does not exist is a warning, once.
func TestStateFile_CannotBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startProcess(t, filepath.Join(t.TempDir(), "none", "state"), "1")
		for range 3 {
			p.learnCaches()
			time.Sleep(2 * saveInterval)
		}
		p.stop()
		assert.Equal(t, 1, p.logs.FilterMessageSnippet("Could not write the state file").Len())
	})
}

// stateOf returns a file with what a process with these endpoints knows.
func stateOf(now time.Time, uids ...string) []byte {
	var s *StateFile
	p := &process{SavedPool: s.JoinPool("pool", estimate.New(prefixindex.NewMemoryBudget(1<<20)))}
	for _, uid := range uids {
		p.endpoints = append(p.endpoints, p.NewEndpoint(describe("a", uid), now))
	}
	p.learnCaches()
	s = &StateFile{pools: map[string]*SavedPool{"pool": p.SavedPool}}
	var content bytes.Buffer
	if err := writeState(&content, s.knownCaches(), now); err != nil {
		panic(err) // unreachable: a buffer has room
	}
	return content.Bytes()
}

// signed replaces the checksum of a file.
func signed(content []byte) []byte {
	body := content[:len(content)-checksumSize]
	return append(body[:len(body):len(body)], checksumOf(body)...)
}

func TestStateFile_CannotBeUsed(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	whole, head := stateOf(now, "1"), len(stateMagic+stateVersion)
	var other bytes.Buffer
	_, err := protodelim.MarshalTo(&other, &State{Time: now.Unix(), Scheme: 1})
	require.NoError(t, err)
	old := func(age time.Duration) []byte { return stateOf(now.Add(-age), "1") }
	for name, tt := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":            {nil, "not a state file, or damaged"},
		"another file":     {[]byte("endpoints:\n- address: 10.0.0.1\n"), "not a state file, or damaged"},
		"another version":  {bytes.Replace(whole, []byte(stateVersion), []byte("1.3\n"), 1), "another version"},
		"too old":          {old(maxStateAge + 2*time.Second), "written 10m2s ago, more than 10m0s"},
		"of the future":    {old(-maxStateAge - 2*time.Second), "ago, more than 10m0s"},
		"other hashes":     {signed(append(append(bytes.Clone(whole[:head]), other.Bytes()...), whole[:checksumSize]...)), "prompts had other hashes"},
		"no end":           {signed(whole[:len(whole)-5]), "unexpected EOF"},
		"nothing but head": {signed(append(bytes.Clone(whole[:head]), whole[:checksumSize]...)), "EOF"},
	} {
		_, err := decodeState(tt.content, now)
		require.ErrorIs(t, err, errState, name)
		require.ErrorContains(t, err, tt.want, name)
	}
	for n := range whole {
		_, err := decodeState(whole[:n], now)
		require.ErrorIs(t, err, errState, "%d of %d bytes", n, len(whole))
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x10
		_, err = decodeState(damaged, now)
		require.ErrorIs(t, err, errState, "byte %d of %d", n, len(whole))
	}
}

// What cannot be a state is not read, and the reason is one warning.
func TestStateFile_IsNotRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	large := filepath.Join(folder, "large")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, 1<<40))
	for path, want := range map[string]string{
		folder: "not a regular file", large: "1099511627776 bytes are more than the 1048576 of the index of prefixes",
	} {
		core, logs := observer.New(zap.InfoLevel)
		NewStateFile(zap.New(core), path, 1<<20).LoadCaches()
		require.Equal(t, 1, logs.Len())
		assert.Equal(t, "Ignored the state file, started without contents of caches", logs.All()[0].Message)
		assert.Contains(t, logs.All()[0].ContextMap()["error"], want)
	}
}

// A file has at most its limit: what was used last stays, of each cache.
func TestStateFile_IsBounded(t *testing.T) {
	t.Parallel()
	const limit = 40_000
	x := estimate.New(prefixindex.NewMemoryBudget(1 << 30))
	p := (*StateFile)(nil).JoinPool(strings.Repeat("pool", 100), x)
	view := x.NewReplica()
	for i := range 10 {
		e := x.NewEndpoint(describe("a", fmt.Sprint(i)), time.Now())
		p.endpoints = append(p.endpoints, e)
		for n := range uint64(100 * i) {
			view.ApplyEvent(estimate.Event{Kind: estimate.EventCached, Endpoint: e, Chain: []uint64{n, n + 1<<63}}, time.Now())
			view.ApplyEvent(estimate.Event{Kind: estimate.EventOccupied, Endpoint: e, Tokens: 160}, time.Now())
		}
	}
	path := filepath.Join(t.TempDir(), "state")
	s := NewStateFile(zap.NewNop(), path, limit)
	s.pools["pool"] = p
	require.NoError(t, s.writeFile(time.Now()))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(content), limit)
	found, err := decodeState(content, time.Now())
	require.NoError(t, err)
	assert.Len(t, found, 9)
	next := estimate.New(prefixindex.NewMemoryBudget(1 << 30))
	restored := (*StateFile)(nil).JoinPool("pool", next)
	e := next.NewEndpoint(describe("a", "9"), time.Now())
	restored.restoreCache(e, found[p.cacheName(p.endpoints[9])])
	got, all := withoutEndpoints(next.Contents([]*endpoint.Endpoint{e})), withoutEndpoints(x.Contents(p.endpoints[9:]))
	require.NotEmpty(t, got)
	assert.Equal(t, all[len(all)-len(got):], got)
}

// Whatever the bytes are, reading ends, and so does restoring what a checksum protects.
func FuzzStateFile(f *testing.F) {
	whole := stateOf(time.Now(), "1", "2")
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(binary.AppendUvarint([]byte(stateMagic+stateVersion), 1<<62))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, content := range [][]byte{content, signed(append(content, whole[:checksumSize]...))} {
			found, err := decodeState(content, time.Now())
			if err != nil && !errors.Is(err, errState) {
				t.Errorf("another error: %v", err)
			}
			for _, saved := range found {
				p := (*StateFile)(nil).JoinPool("pool", estimate.New(prefixindex.NewMemoryBudget(1<<20)))
				e := p.NewEndpoint(describe("a", "1"), time.Now())
				p.restoreCache(e, saved)
				if ratio := p.SavedServer(e).Ratio; !(ratio > 0 && ratio < 1e6) {
					t.Errorf("ratio %v", ratio)
				}
			}
		}
	})
}

// BenchmarkStateFile reads a full index of the default size, which picks wait for, and writes the file.
func BenchmarkStateFile(b *testing.B) {
	const endpoints = 64
	for _, blocks := range []int{1, 80} { // of a prompt
		x := estimate.New(prefixindex.NewMemoryBudget(prefixindex.DefaultMaxBytes))
		s := NewStateFile(zap.NewNop(), filepath.Join(b.TempDir(), "state"), prefixindex.DefaultMaxBytes)
		p := s.JoinPool("pool", x)
		for i := range endpoints {
			p.endpoints = append(p.endpoints, p.NewEndpoint(describe("a", fmt.Sprint(i)), time.Now()))
		}
		view, random := x.NewReplica(), rand.New(rand.NewPCG(1, 1))
		for n := range 120_000 {
			chain := make([]uint64, blocks)
			for i := range chain {
				chain[i] = random.Uint64()
			}
			view.ApplyEvent(estimate.Event{Kind: estimate.EventCached, Endpoint: p.endpoints[n%endpoints], Chain: chain}, time.Now())
		}
		b.Run(fmt.Sprintf("read/%d", blocks), func(b *testing.B) {
			for b.Loop() {
				x.Contents(p.endpoints)
			}
		})
		b.Run(fmt.Sprintf("save/%d", blocks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.writeFile(time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("load/%d", blocks), func(b *testing.B) {
			for b.Loop() {
				s.LoadCaches()
				next := s.JoinPool("pool", estimate.New(prefixindex.NewMemoryBudget(prefixindex.DefaultMaxBytes)))
				for i := range endpoints {
					next.NewEndpoint(describe("a", fmt.Sprint(i)), time.Now())
				}
			}
		})
	}
}
