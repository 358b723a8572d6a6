package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/klog/v2"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		giveArgs []string
		want     Options
		wantErr  string
	}{
		{name: "defaults", want: Options{Level: "info", Format: "json"}},
		{name: "flags set both", giveArgs: []string{"--log-level=debug", "--log-format=console"}, want: Options{Level: "debug", Format: "console"}},
		{name: "unknown level", giveArgs: []string{"--log-level=loud"}, wantErr: `--log-level "loud" is not one of debug, info, warn, error`},
		{name: "level of zap that the flag does not accept", giveArgs: []string{"--log-level=fatal"}, wantErr: "--log-level"},
		{name: "unknown format", giveArgs: []string{"--log-format=xml"}, wantErr: `--log-format "xml" is not one of json, console`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := DefaultOptions()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(fs)
			require.NoError(t, fs.Parse(tt.giveArgs))

			_, err := New(o, &bytes.Buffer{})
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, o)
		})
	}
}

func TestNewWritesOneJSONObjectPerLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := New(DefaultOptions(), &out)
	require.NoError(t, err)

	log.Debug("Hidden")
	log.Named("scraper").Info("Read metrics", zap.String(KeyPod, "ns/a"), zap.Error(errors.New("late")))

	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), "exactly one JSON object")
	assert.NotEmpty(t, line["time"])
	delete(line, "time")
	assert.Equal(t, map[string]any{
		"level": "info", "logger": "scraper", "message": "Read metrics", "pod": "ns/a", "error": "late",
	}, line)
}

func TestNewWritesConsoleLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := New(Options{Level: "debug", Format: FormatConsole}, &out)
	require.NoError(t, err)

	log.Debug("Picked endpoint", zap.String(KeyEndpoint, "10.0.0.1:8000"))

	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}\tdebug\tPicked endpoint\t{"endpoint": "10.0.0.1:8000"}\n$`, out.String())
}

func TestContextCarriesLogger(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)

	FromContext(t.Context()).Info("Discarded")
	FromContext(WithContext(t.Context(), zap.New(core))).Info("Recorded")

	require.Equal(t, 1, logs.Len())
	assert.Equal(t, "Recorded", logs.All()[0].Message)
}

// The test and its subtests are not parallel: klog is global.
func TestBridgeKlog(t *testing.T) {
	tests := []struct {
		name  string
		level zapcore.Level
		want  []string
	}{
		{name: "info shows V(0) and errors", level: zapcore.InfoLevel, want: []string{"info v0", "error broken"}},
		{
			name:  "debug shows up to V(4), as debug",
			level: zapcore.DebugLevel,
			want:  []string{"info v0", "debug v1", "debug v4", "debug contextual", "error broken"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(tt.level)
			BridgeKlog(zap.New(core))
			t.Cleanup(klog.ClearLogger)

			klog.Info("v0")
			klog.V(1).Info("v1")
			klog.V(4).InfoS("v4", "key", "value")
			klog.FromContext(t.Context()).WithName("reflector").WithValues("a", 1).V(3).Info("contextual")
			klog.V(5).Info("v5")
			klog.FromContext(t.Context()).V(6).Info("contextual v6")
			klog.ErrorS(errors.New("cause"), "broken")

			var got []string
			for _, e := range logs.All() {
				got = append(got, e.Level.String()+" "+strings.TrimSpace(e.Message))
				assert.Regexp(t, `^klog(\.reflector)?$`, e.LoggerName)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
