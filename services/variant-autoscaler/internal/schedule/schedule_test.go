package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestRead(t *testing.T) {
	t.Parallel()
	two, five := 2, 5
	got, err := Read(`[{"cron": "0 9 * * mon-fri", "timeZone": "Europe/Berlin", "duration": "8h30m", "minReplicas": 2}, {"cron":"*/5 0 1,15 jan *","duration":"1m","minReplicas":2,"maxReplicas":5}]`)
	require.NoError(t, err)
	assert.Equal(t, []snapshot.Schedule{
		{Cron: "0 9 * * mon-fri", TimeZone: "Europe/Berlin", Duration: 8*time.Hour + 30*time.Minute, Min: &two},
		{Cron: "*/5 0 1,15 jan *", Duration: time.Minute, Min: &two, Max: &five},
	}, got)
	got, err = Read(`[]`)
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	with := func(field, value string) string {
		all := map[string]string{"cron": `"0 9 * * *"`, "timeZone": `"UTC"`, "duration": `"8h"`, "minReplicas": "1", "maxReplicas": "3"}
		if all[field] = value; value == "" {
			delete(all, field)
		}
		var fields []string
		for k, v := range all {
			fields = append(fields, fmt.Sprintf("%q: %s", k, v))
		}
		return "[{" + strings.Join(fields, ",") + "}]"
	}
	_, err := Read(with("x", ""))
	require.NoError(t, err)
	tests := []struct{ name, give, want string }{
		{"no JSON", `0 9 * * *`, "is not a list"},
		{"an object", `{"cron": "0 9 * * *"}`, "is not a list"},
		{"an unknown field", with("replicas", "7"), `unknown field "replicas"`},
		{"something after the list", "[] []", "after the list"},
		{"a large text", "[" + strings.Repeat(" ", MaxText) + "]", "16384 bytes"},
		{"many entries", "[" + strings.Repeat(strings.Trim(with("", ""), "[]")+",", 32) + strings.Trim(with("", ""), "[]") + "]", "33 entries: at most 32"},
		{"no cron", with("cron", ""), `entry 0: cron ""`},
		{"four fields", with("cron", `"0 9 * *"`), "use five fields"},
		{"six fields", with("cron", `"0 0 9 * * *"`), "use five fields"},
		{"a field that is too large", with("cron", `"0 24 * * *"`), "use five fields"},
		{"a long cron", with("cron", `"0 9 * * `+strings.Repeat("1,", 70)+`1"`), "128 characters"},
		{"a day that no month has", with("cron", `"0 9 30 2 *"`), "is never"},
		{"an interval", with("cron", `"@every 1h"`), "use five fields"},
		{"a zone in the cron", with("cron", `"TZ=UTC 0 9 * * *"`), "is in timeZone"},
		{"a zone and nothing", with("cron", `"TZ=x"`), "is in timeZone"}, // the parser panics
		{"a zone and nothing, by its other name", with("cron", `"CRON_TZ=x"`), "is in timeZone"},
		{"an unknown zone", with("timeZone", `"Europe/Atlantis"`), "is not known"},
		{"the zone of the machine", with("timeZone", `"Local"`), "use a name such as"},
		{"a file", with("timeZone", `"../../etc/passwd"`), "is not known"},
		{"a long zone", with("timeZone", `"`+strings.Repeat("x", 65)+`"`), "use a name such as"},
		{"no duration", with("duration", ""), "from 1m to 168h"},
		{"a short duration", with("duration", `"59s"`), "from 1m to 168h"},
		{"a long duration", with("duration", `"168h1s"`), "from 1m to 168h"},
		{"a negative duration", with("duration", `"-8h"`), "from 1m to 168h"},
		{"a number as duration", with("duration", `"8"`), "from 1m to 168h"},
		{"no bounds", `[{"cron": "0 9 * * *", "duration": "8h"}]`, "minReplicas or maxReplicas is missing"},
		{"a negative minimum", with("minReplicas", "-1"), "minReplicas is -1: use 0 to 100000"},
		{"a huge minimum", with("minReplicas", "100001"), "minReplicas is 100001"},
		{"a maximum of 0", with("maxReplicas", "0"), "maxReplicas is 0: use 1 to 100000"},
		{"a huge maximum", with("maxReplicas", "100001"), "maxReplicas is 100001"},
		{"half a replica", with("maxReplicas", "1.5"), "is not a list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func entryOf(text, zone string, duration time.Duration, least int) snapshot.Schedule {
	return snapshot.Schedule{Cron: text, TimeZone: zone, Duration: duration, Min: &least}
}

func TestLast(t *testing.T) {
	t.Parallel()
	work := entryOf("0 9 * * 1-5", "Europe/Berlin", 8*time.Hour, 3)
	night := entryOf("30 2 * * *", "Europe/Berlin", 20*time.Minute, 4)
	shown := entryOf("30 1 * * *", "America/New_York", 20*time.Minute, 5)
	week := entryOf("0 0 * * 1", "", 7*24*time.Hour, 6)
	quarter := entryOf("0 0 1 1,4,7,10 *", "", time.Hour, 7)
	either := entryOf("0 12 13 * 5", "", time.Hour, 8)
	tests := []struct {
		name  string
		at    string
		entry snapshot.Schedule
		want  bool
	}{
		{"before", "2026-03-02T07:59:59Z", work, false},
		{"at its begin", "2026-03-02T08:00:00Z", work, true},
		{"in its last second", "2026-03-02T15:59:59Z", work, true},
		{"at its end", "2026-03-02T16:00:00Z", work, false},
		{"in summer", "2026-07-06T07:00:00Z", work, true},
		{"on a Sunday", "2026-03-01T12:00:00Z", work, false},

		{"a time that the clock skips, before", "2026-03-29T00:59:59Z", night, false},
		{"a time that the clock skips", "2026-03-29T01:00:00Z", night, true},
		{"a time that the clock skips, after", "2026-03-29T01:20:00Z", night, false},
		{"the next day", "2026-03-30T00:30:00Z", night, true},
		{"a time that the clock shows twice, before", "2026-10-25T00:29:59Z", night, false},
		{"a time that the clock shows twice", "2026-10-25T00:30:00Z", night, true},
		{"a time that the clock shows twice, the second", "2026-10-25T01:30:00Z", night, false},
		{"a time that the clock shows twice, west of UTC", "2026-11-01T05:30:00Z", shown, true},
		{"a time that the clock shows twice, west of UTC, the second", "2026-11-01T06:30:00Z", shown, false},
		{"the day before, west of UTC", "2026-10-31T05:30:00Z", shown, true},
		{"the day after, west of UTC", "2026-11-02T06:30:00Z", shown, true},

		{"a week, at its end", "2026-03-08T23:59:59Z", week, true},
		{"a week, the next", "2026-03-09T00:00:00Z", week, true},
		{"by month", "2026-04-01T00:59:59Z", quarter, true},
		{"not by month", "2026-05-01T00:30:00Z", quarter, false},
		{"either day: the 13th", "2026-04-13T12:30:00Z", either, true},
		{"either day: a Friday", "2026-04-17T12:30:00Z", either, true},
		{"either day: neither", "2026-04-14T12:30:00Z", either, false},
		{"in a zone far in the east", "2026-04-01T23:30:00Z", entryOf("0 13 2 * *", "Pacific/Kiritimati", time.Hour, 1), true},
		{"in a zone far in the west", "2026-04-02T11:30:00Z", entryOf("0 0 2 * *", "Pacific/Pago_Pago", time.Hour, 1), true},
		{"cannot be read", "2026-04-01T00:30:00Z", entryOf("TZ=x", "", time.Hour, 1), false},
		{"unknown zone", "2026-04-01T00:30:00Z", entryOf("* * * * *", "x", time.Hour, 1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(time.RFC3339, tt.at)
			require.NoError(t, err)
			assert.Equal(t, tt.want, NewClock(at).LastInForce([]snapshot.Schedule{tt.entry}) != nil)
		})
	}
}

func TestLastOfSeveral(t *testing.T) {
	t.Parallel()
	all := []snapshot.Schedule{
		entryOf("0 * * * *", "", time.Hour, 1), entryOf("0 9 * * *", "", 2*time.Hour, 2), entryOf("0 10 * * *", "", 2*time.Hour, 3),
	}
	at := func(hour int) int {
		return *NewClock(time.Date(2026, 3, 2, hour, 30, 0, 0, time.UTC)).LastInForce(all).Min
	}
	assert.Equal(t, []int{1, 2, 3, 3, 1}, []int{at(8), at(9), at(10), at(11), at(12)})
	assert.Nil(t, NewClock(time.Now()).LastInForce(nil))
}

// TestLastAgreesWithCron compares with the next times of the library, from which the last one follows where no clock is changed.
func TestLastAgreesWithCron(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"* * * * *", "*/7 * * * *", "0 9 * * 1-5", "59 23 31 * *", "30 4 1,15 * 5", "5,35 8-18/3 * 1-6 *", "0 0 29 2 *", "1 1 1 1 0"} {
		rule, err := parseCron(text)
		require.NoError(t, err)
		var schedule cron.Schedule = rule
		for _, name := range []string{"UTC", "Asia/Kolkata", "Asia/Tokyo"} {
			l, err := loadZone(name)
			require.NoError(t, err)
			for i := range testlane.Repetitions(20, 400) {
				at := time.Date(2027, 12, 20, 0, 0, 0, 0, l).Add(time.Duration(i) * 4391 * time.Second)
				want := time.Time{}
				for next := schedule.Next(at.Add(-maxDuration)); !next.IsZero() && !next.After(at); next = schedule.Next(next) {
					want = next
					if text == "* * * * *" {
						want = at.Truncate(time.Minute)
						break
					}
				}
				got := lastBegin(rule, at)
				if at.Sub(got) >= maxDuration {
					got = time.Time{}
				}
				require.True(t, want.Equal(got), "%s at %v: got %v, want %v", text, at, got, want)
			}
		}
	}
}

// FuzzRead: what can be read can be used, at any time.
func FuzzRead(f *testing.F) {
	f.Add(`[{"cron": "0 9 * * 1-5", "timeZone": "Europe/Berlin", "duration": "8h", "minReplicas": 3}]`, int64(1_774_746_000))
	f.Add(`[{"cron": "TZ=x", "duration": "8h", "minReplicas": 3}]`, int64(0))
	f.Add(`[{"cron": "@every 1s", "duration": "1h", "maxReplicas": 3}]`, int64(-1))
	f.Add(`[{"cron": "*/5 1-23/2 */3 jan,feb ?", "duration": "168h", "maxReplicas": 100000}]`, int64(1)<<33)
	f.Fuzz(func(t *testing.T, text string, at int64) {
		entries, err := Read(text)
		if err != nil {
			require.Empty(t, entries)
			return
		}
		c := NewClock(time.Unix(at%(1<<36), 0))
		for i := range entries {
			s := &entries[i]
			require.True(t, s.Min != nil || s.Max != nil)
			c.inForce(s)
			require.NotNil(t, c.rules[s.Cron])
			require.NotNil(t, c.zones[s.TimeZone])
		}
	})
}

// BenchmarkLast is a pass with ten thousand variants of 32 entries each, none of which is in force.
func BenchmarkLast(b *testing.B) {
	for _, bb := range []struct {
		name     string
		distinct int
	}{{"usual", 50}, {"hostile", 320_000}} {
		b.Run(bb.name, func(b *testing.B) {
			variants := make([][]snapshot.Schedule, 10_000)
			for i := range variants {
				for n := range 32 {
					k := (i*32 + n) % bb.distinct
					variants[i] = append(variants[i], entryOf(fmt.Sprintf("%d %d %d 1 *", k%60, k/60%24, k/1440%28+1), "Europe/Berlin", time.Minute, 1))
				}
			}
			for b.Loop() {
				c := NewClock(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
				for _, entries := range variants {
					if c.LastInForce(entries) != nil {
						b.Fatal("nothing is in force in July")
					}
				}
			}
		})
	}
}
