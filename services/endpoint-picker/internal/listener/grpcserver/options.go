package grpcserver

import (
	"cmp"
	"crypto/tls"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxStreams allows gateways to send all requests on one connection. The ledger limits the streams of a gateway.
	maxStreams = 1 << 20
	// messageRoom is for headers and metadata beside the largest body. Handlers that do not use Stream get no larger message: for a
	// body that is larger than that, gRPC breaks the stream, so a gateway gets no 413.
	messageRoom = 1 << 20
	// maxHeaderList limits the HTTP/2 headers of a stream; those of HTTP requests are in messages. gRPC's default is 16 MiB.
	maxHeaderList = 16 << 10

	// workers run the handlers of streams one after the other, so that a handler starts with a grown stack. While all are busy, new streams
	// get their own goroutines. Each gateway has its own workers, which take 40 KiB while they are idle.
	workers = 16
	// streamWindow and connWindow limit the data that a gateway may send before a handler, or the connection's reader, reads
	// it. With fixed windows gRPC does not send a ping for nearly every message to measure the connection.
	streamWindow = 256 << 10
	connWindow   = 4 << 20

	// minPing is the minimum interval of gateways' pings; Envoy's shortest useful interval is a second.
	minPing = 500 * time.Millisecond
	// greetTimeout is the maximum time for TLS and the HTTP/2 preface of a new connection. A silent connection delays a
	// drain.
	greetTimeout = 10 * time.Second
	// pingAfter and pingTimeout detect gateways that disappeared, so that their streams end.
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// Options configures the connections of gateways.
type Options struct {
	TLS            *tls.Config // nil for plaintext. Its verification of clients applies. gRPC adds ALPN (h2)
	MaxRequestBody int         // size of an HTTP body, which may come in one message
	MaxReceive     int         // maximum size of a message from a gateway; 0: enough for the largest body
	MaxSend        int         // maximum size of a message to a gateway; 0: as large as gRPC allows
}

// ServerOptions returns the gRPC options for gateways.
func (o Options) ServerOptions() []grpc.ServerOption {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ConnectionTimeout(greetTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(workers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(cmp.Or(o.MaxReceive, o.MaxRequestBody+messageRoom)),
		grpc.MaxSendMsgSize(cmp.Or(o.MaxSend, math.MaxInt32)),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
	}
}
