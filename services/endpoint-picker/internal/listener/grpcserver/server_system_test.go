//go:build system

package grpcserver

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

func TestPort(t *testing.T) {
	t.Parallel()
	s := New(Params{Log: zap.NewNop(), Options: Options{}.ServerOptions(), Register: watchable{health.NewServer()}.Register, Ledger: limits.NewLedger(limits.Limits{})})
	require.NoError(t, s.OpenListener())
	run(t, s)
	_, port, err := net.SplitHostPort(s.ListenAddress())
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, cancel := watch(t, healthv1.NewHealthClient(conn))
	defer cancel()
	assert.Equal(t, 1, s.GatewayStats().Streams)

	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	second := New(Params{Log: zap.NewNop(), Flag: "grpc-port", Port: n, Register: watchable{health.NewServer()}.Register, Ledger: limits.NewLedger(limits.Limits{})})
	require.ErrorContains(t, second.OpenListener(), fmt.Sprintf("listen on --grpc-port %d:", n), "the port is in use")
	second.Close()
}
