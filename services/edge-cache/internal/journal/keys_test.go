package journal_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/edge-cache/internal/journal"
)

var (
	firstKey  = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	secondKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32))
	secret    = "the private key of a certificate"
)

func secretRecord(n int) journal.Record {
	return journal.Record{
		Type: objectType, Key: "ns/" + secret + string(rune('a'+n%20)), Value: []byte(strings.Repeat(secret, 10)),
	}
}

func requireNoPlaintext(t *testing.T, disk *faultDisk) {
	t.Helper()
	for _, name := range disk.FileNames() {
		require.NotContains(t, string(disk.ReadFile(name)), secret, name)
	}
}

// live appends secrets until there were two compactions.
func (c *cache) live(t *testing.T) {
	t.Helper()
	for n := 0; c.journal.Status().Compactions < 2; n++ {
		require.NoError(t, c.append(secretRecord(n)))
		time.Sleep(time.Millisecond)
	}
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	first, second := writeKeys(t, firstKey), writeKeys(t, secondKey, "", firstKey)
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk()
		c := startCache(t, disk, journal.Options{CompactBytes: 8 << 10, Keys: first})
		c.live(t)
		c.close(t)
		requireNoPlaintext(t, disk)
		s, _, _ := replayed(t, disk.Clone(), journal.Options{Keys: first})
		c.requireLatest(t, s)

		// Neither no key nor another key opens it, and nothing is changed.
		for _, keys := range []journal.Keys{{}, writeKeys(t, secondKey)} {
			before := disk.Clone()
			_, err := journal.Open(disk, journal.Options{Keys: keys})
			require.ErrorIs(t, err, journal.ErrKey)
			require.Equal(t, before.FileNames(), disk.FileNames())
		}

		// A rotation: the new key encrypts, and soon nothing needs the old one.
		rotated := startCache(t, disk, journal.Options{Keys: second})
		c.requireLatest(t, rotated.now)
		time.Sleep(time.Second)
		rotated.close(t)
		s, _, _ = replayed(t, disk.Clone(), journal.Options{Keys: writeKeys(t, secondKey)})
		rotated.requireLatest(t, s)
	})
}

// TestEncryptionOfAnExistingDirectory leaves nothing readable behind, nor the other way around.
func TestEncryptionOfAnExistingDirectory(t *testing.T) {
	t.Parallel()
	keys := writeKeys(t, firstKey)
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultDisk()
		plain := startCache(t, disk, small)
		plain.live(t)
		plain.close(t)
		sealed := startCache(t, disk, journal.Options{Keys: keys})
		plain.requireLatest(t, sealed.now)
		time.Sleep(time.Second)
		requireNoPlaintext(t, disk)
		sealed.close(t)
		s, _, _ := replayed(t, disk, journal.Options{Keys: keys})
		sealed.requireLatest(t, s)
	})
}

// TestErase removes a deleted value from the disk: also one that the snapshot has that is being written, and one of a full disk.
func TestErase(t *testing.T) {
	t.Parallel()
	put := journal.Record{Type: objectType, Key: "secret", Value: []byte(secret)}
	remove := journal.Record{Type: objectType, Key: "secret"}
	onDisk := func(disk *faultDisk) bool {
		return slices.ContainsFunc(disk.FileNames(), func(name string) bool { return bytes.Contains(disk.ReadFile(name), []byte(secret)) })
	}
	tests := []struct {
		name   string
		during func(c *cache, disk *faultDisk)
		after  func(disk *faultDisk)
	}{
		{name: "settled"},
		{name: "in the log of a snapshot that fails", during: func(c *cache, _ *faultDisk) {
			c.fail.Store(true)
			c.journal.EraseDeleted()
			time.Sleep(5 * time.Second)
			_ = c.append(put)
		}},
		{name: "while a snapshot is written", during: func(c *cache, _ *faultDisk) {
			c.setPause(time.Second)
			c.journal.EraseDeleted()
			time.Sleep(5 * time.Second)
		}},
		{name: "full disk", during: func(c *cache, disk *faultDisk) {
			disk.SetFree(1)
			c.journal.EraseDeleted()
			time.Sleep(5 * time.Second)
		}, after: (*faultDisk).SetUnbounded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				disk := newFaultDisk()
				c := startCache(t, disk, journal.Options{})
				for i := range 20 {
					require.NoError(t,
						c.append(journal.Record{Type: objectType, Key: fmt.Sprint("other-", i), Value: []byte("x")}))
				}
				require.NoError(t, c.append(put))
				c.journal.EraseDeleted() // the snapshot before the last one has it
				time.Sleep(time.Minute)
				require.True(t, onDisk(disk))
				if tt.during != nil {
					tt.during(c, disk)
				}
				_ = c.append(remove) // the disk may be full
				c.journal.EraseDeleted()
				time.Sleep(5 * time.Second)
				if tt.after != nil {
					tt.after(disk)
				}
				c.fail.Store(false)
				time.Sleep(time.Minute)
				assert.False(t, onDisk(disk))
				c.close(t)
				s, _, _ := replayed(t, disk, journal.Options{})
				c.requireLatest(t, s)
			})
		})
	}
}

// TestEncryptedFilesThatWereChanged has a right checksum and a wrong content: somebody who can write the files, but does not have the key.
func TestEncryptedFilesThatWereChanged(t *testing.T) {
	t.Parallel()
	o := journal.Options{CompactBytes: 8 << 10, Keys: writeKeys(t, firstKey)}
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(30, 0))
		original, c := filledDisk(t, o, random)
		for _, name := range original.FileNames() {
			for range seeds(100) {
				disk := original.Clone()
				disk.FlipBits(name, random.IntN(disk.FileSize(name)), 1<<random.IntN(8))
				j, err := journal.Open(disk, o)
				if err != nil {
					require.ErrorIs(t, err, journal.ErrKey, "the header names another key")
					continue
				}
				s := state{}
				require.NoError(t, j.Replay(s.apply))
				require.NoError(t, j.Close())
				c.requirePrefix(t, s, s.batch())
			}
		}
	})
}

func TestReadKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, giveContent, wantErr string
	}{
		{name: "one key", giveContent: firstKey},
		{name: "spaces and empty lines", giveContent: "\n  " + firstKey + " \r\n\n" + secondKey},
		{name: "empty", giveContent: " \n", wantErr: "no key"},
		{name: "short key", giveContent: base64.StdEncoding.EncodeToString(make([]byte, 16)), wantErr: "line 1 is not 32 bytes"},
		{name: "not base64", giveContent: firstKey + "\nhunter2!", wantErr: "line 2 is not 32 bytes"},
		{name: "too many", giveContent: strings.Repeat(firstKey+"\n", 17), wantErr: "more than 16 keys"},
		{name: "too large", giveContent: strings.Repeat("\n", 5000), wantErr: "more than 4096 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keys")
			require.NoError(t, os.WriteFile(path, []byte(tt.giveContent), 0o600))
			_, err := journal.ReadKeys(path)
			if tt.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.wantErr)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, err := journal.ReadKeys(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
