package cli

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/version"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		give    []string
		done    bool
		prints  string
		wantErr string
	}{
		{name: "nothing"},
		{name: "a flag", give: []string{"--port=1"}},
		{name: "help", give: []string{"--help"}, done: true, prints: "--port"},
		{name: "the version", give: []string{"--version"}, done: true, prints: version.String() + "\n"},
		{name: "no such flag", give: []string{"--prot=1"}, done: true, wantErr: "parse flags: unknown flag: --prot"},
		{name: "an argument", give: []string{"on"}, done: true, wantErr: `unexpected argument "on"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fs := pflag.NewFlagSet("emulator", pflag.ContinueOnError)
			fs.Int("port", 8000, "Port to listen on.")
			var out strings.Builder
			done, err := Parse(fs, tt.give, &out)
			assert.Equal(t, tt.done, done)
			if tt.wantErr != "" {
				assert.EqualError(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, out.String(), tt.prints)
			assert.Equal(t, tt.prints == "", out.String() == "")
		})
	}
}
