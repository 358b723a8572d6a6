package app

import (
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool/datastore"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// noEndpoints is the source of an empty pool.
type noEndpoints struct{}

func (noEndpoints) ReadPool() (*datastore.Pool, error)             { return &datastore.Pool{}, nil }
func (noEndpoints) WaitForSync(context.Context) bool               { return true }
func (noEndpoints) OnChange(func())                                {}
func (noEndpoints) Reference() (o corev1.ObjectReference, ok bool) { return o, false }

// TestPoolsShareTheMemoryForPrefixes fills the indexes of several pools.
func TestPoolsShareTheMemoryForPrefixes(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Prefixes.MaxBytes = 256 << 10
	tracer, err := newTracer(cfg, zap.NewNop())
	require.NoError(t, err)
	pools := newRunningPools(poolParts{Config: cfg, Log: zap.NewNop(), Tracer: tracer})
	id := endpoint.Identity{Pod: "model-server", Address: netip.MustParseAddrPort("10.0.0.1:8000")}
	held := 0
	for _, name := range []string{"a", "b", "c", "d"} {
		x := pools.addPool("ns/"+name, name, noEndpoints{}).Estimator
		e := x.NewEndpoint(endpoint.Description{Identity: id}, time.Now())
		for i := range 1000 {
			p := &estimate.Prompt{Chain: &prefixindex.Chain{}}
			p.Chain.Reset(1, 16)
			text := make([]byte, 16*prefixindex.BlockTokens*prefixindex.BytesPerToken)
			binary.BigEndian.PutUint64(text, uint64(i))
			p.Chain.Write(text)
			x.ConfirmPlacement(x.RecordPlacement(p, e, &estimate.Expectation{}))
		}
	}
	for _, one := range pools.sortedPools() {
		held += one.Estimator.IndexStats().Bytes
	}
	assert.Positive(t, held)
	assert.LessOrEqual(t, held, int(cfg.Prefixes.MaxBytes))
}
