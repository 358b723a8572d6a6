package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		giveArgs []string
		want     Options
		wantErr  string
	}{
		{name: "defaults", want: Options{QPS: 50, Burst: 100}},
		{
			name:     "flags set all",
			giveArgs: []string{"--kubeconfig=a", "--kube-api-qps=0.5", "--kube-api-burst=1"},
			want:     Options{Kubeconfig: "a", QPS: 0.5, Burst: 1},
		},
		{name: "no requests allowed", giveArgs: []string{"--kube-api-qps=0"}, wantErr: "--kube-api-qps 0 must be greater than zero"},
		{name: "no burst allowed", giveArgs: []string{"--kube-api-burst=0"}, wantErr: "--kube-api-burst 0 must be at least one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := DefaultOptions()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(fs)
			require.NoError(t, fs.Parse(tt.giveArgs))

			err := o.Validate()
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, o)
		})
	}
}

// Not parallel: this test and the next ones set environment variables.
func TestRESTConfigTakesFirstSource(t *testing.T) {
	tests := []struct {
		name             string
		flag, env, home  bool
		serviceAccount   bool
		want, wantNoHost string
	}{
		{name: "flag before all", flag: true, env: true, serviceAccount: true, home: true, want: "https://flag"},
		{name: "KUBECONFIG before service account", env: true, serviceAccount: true, home: true, want: "https://env"},
		{name: "service account before home", serviceAccount: true, home: true, wantNoHost: "service account"},
		{name: "home last", home: true, want: "https://home"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := isolate(t)
			o := DefaultOptions()
			if tt.flag {
				o.Kubeconfig = writeKubeconfig(t, filepath.Join(dir, "flag"), "https://flag")
			}
			if tt.env {
				t.Setenv("KUBECONFIG", writeKubeconfig(t, filepath.Join(dir, "env"), "https://env"))
			}
			if tt.serviceAccount {
				// The token file does not exist, so the error shows that the service account was tried.
				t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
				t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			}
			if tt.home {
				writeKubeconfig(t, filepath.Join(dir, ".kube", "config"), "https://home")
			}

			cfg, err := o.RESTConfig("picker/v1")
			if tt.wantNoHost != "" {
				require.ErrorContains(t, err, tt.wantNoHost)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, cfg.Host)
			assert.Equal(t, "picker/v1", cfg.UserAgent)
			assert.InDelta(t, 50, cfg.QPS, 0)
			assert.Equal(t, 100, cfg.Burst)
		})
	}
}

func TestRESTConfigMergesKubeconfigList(t *testing.T) {
	dir := isolate(t)
	list := filepath.Join(dir, "absent") + string(os.PathListSeparator) + writeKubeconfig(t, filepath.Join(dir, "env"), "https://env")
	t.Setenv("KUBECONFIG", list)

	cfg, err := DefaultOptions().RESTConfig("")

	require.NoError(t, err)
	assert.Equal(t, "https://env", cfg.Host)
}

func TestRESTConfigSaysWhatWasTried(t *testing.T) {
	dir := isolate(t)
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	tests := []struct {
		name      string
		flag, env string
		want      []string
	}{
		{name: "nothing there", want: []string{"--kubeconfig", "KUBECONFIG", "not running in a pod", filepath.Join(dir, ".kube", "config")}},
		{name: "flag names no file", flag: "/nowhere", env: empty, want: []string{"--kubeconfig /nowhere", "no such file"}},
		{name: "KUBECONFIG names no file", env: "/nowhere", want: []string{"KUBECONFIG /nowhere", "file defines no cluster"}},
		{name: "file is empty", flag: empty, want: []string{"--kubeconfig " + empty, "file defines no cluster"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.env)
			_, err := Options{Kubeconfig: tt.flag}.RESTConfig("")
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

// isolate hides the kubeconfig of the machine and returns a new home directory.
func isolate(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	return dir
}

func writeKubeconfig(t *testing.T, path, server string) string {
	t.Helper()
	config := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
`, server)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	return path
}
