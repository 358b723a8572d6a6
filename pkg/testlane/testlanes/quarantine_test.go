package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCheckQuarantine(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name, file, want string
	}{
		{name: "empty"},
		{name: "comments", file: "# Tests that failed once.\n\n# None.\n"},
		{name: "two", file: "2026-11-19 fairlead.dev/pkg/run TestA\n  --- FAIL: TestA\n2026-11-06 ./pkg/b TestB\n\tpanic\n"},
		{name: "old", file: "2026-11-05 fairlead.dev/pkg/run TestA\n  --- FAIL\n", want: "TestA has been in quarantine for 15 days, 14 are allowed"},
		{name: "no log", file: "2026-11-19 fairlead.dev/pkg/run TestA\n", want: "add the last lines of the log"},
		{name: "no log before another", file: "2026-11-19 fairlead.dev/pkg/run TestA\n2026-11-19 fairlead.dev/pkg/run TestB\n  log\n", want: "add the last lines of the log"},
		{name: "date", file: "19.11.2026 fairlead.dev/pkg/run TestA\n  log\n", want: "want a date like"},
		{name: "fields", file: "2026-11-19 TestA\n  log\n", want: "want a date, a package and the name of a test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			problems := checkQuarantine(tt.file, now)
			if tt.want == "" {
				assert.Empty(t, problems)
				return
			}
			if assert.Len(t, problems, 1) {
				assert.Contains(t, problems[0], tt.want)
			}
		})
	}
}
