package cri

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCapabilities(t *testing.T) {
	t.Parallel()
	const netAdmin, chown = uint64(1 << unix.CAP_NET_ADMIN), uint64(1 << unix.CAP_CHOWN)
	tests := []struct {
		name       string
		add, drop  []string
		privileged bool
		want       uint64
	}{
		{name: "as containerd", want: 0xa80425fb},
		{name: "one more", add: []string{"NET_ADMIN"}, want: 0xa80425fb | netAdmin},
		{name: "one less", drop: []string{"CHOWN"}, want: 0xa80425fb &^ chown},
		{name: "none", drop: []string{"ALL"}, want: 0},
		{name: "one alone", add: []string{"NET_ADMIN"}, drop: []string{"ALL"}, want: netAdmin},
		{name: "all", add: []string{"ALL"}, want: everyCapability},
		{name: "all but one", add: []string{"ALL"}, drop: []string{"CHOWN"}, want: everyCapability &^ chown},
		{name: "by its long name, in small letters", add: []string{"cap_net_admin"}, drop: []string{"all"}, want: netAdmin},
		{name: "privileged", drop: []string{"ALL"}, privileged: true, want: everyCapability},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := capabilities(&runtimeapi.LinuxContainerSecurityContext{Privileged: tt.privileged,
				Capabilities: &runtimeapi.Capability{AddCapabilities: tt.add, DropCapabilities: tt.drop}})
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestCapabilities_UnknownOnesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []*runtimeapi.Capability{{AddCapabilities: []string{"FLY"}}, {DropCapabilities: []string{"FLY"}}} {
		_, err := capabilities(&runtimeapi.LinuxContainerSecurityContext{Capabilities: c})
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "unknown capability FLY")
	}
}

func TestCapabilityNames_AreInTheOrderOfTheKernel(t *testing.T) {
	t.Parallel()
	require.Len(t, capabilityNames, unix.CAP_LAST_CAP+1)
	for name, want := range map[string]int{"CHOWN": unix.CAP_CHOWN, "NET_RAW": unix.CAP_NET_RAW, "SYS_ADMIN": unix.CAP_SYS_ADMIN,
		"MKNOD": unix.CAP_MKNOD, "SETFCAP": unix.CAP_SETFCAP, "AUDIT_READ": unix.CAP_AUDIT_READ, "CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE} {
		assert.Equal(t, want, indexOf(name), name)
	}
}

func indexOf(name string) int {
	for i, known := range capabilityNames {
		if known == name {
			return i
		}
	}
	return -1
}
