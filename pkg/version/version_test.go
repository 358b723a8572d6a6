package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	built := &debug.BuildInfo{
		Main:     debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: "f00"}},
	}
	tests := []struct {
		name         string
		linked, rev  string
		info         *debug.BuildInfo
		want, wantID string
	}{
		{name: "linked values win", linked: "v1.2.3", rev: "abc", info: built, want: "v1.2.3", wantID: "abc"},
		{name: "build info without linked values", info: built, want: "(devel)", wantID: "f00"},
		{name: "empty build info", info: &debug.BuildInfo{}, want: "unknown", wantID: "unknown"},
		{name: "no build info", want: "unknown", wantID: "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, resolveVersion(tt.linked, tt.info))
			assert.Equal(t, tt.wantID, resolveCommit(tt.rev, tt.info))
		})
	}
}

func TestNeverEmpty(t *testing.T) {
	t.Parallel()
	assert.NotEmpty(t, String())
	assert.NotEmpty(t, Commit())
}
