package grpcserver

import (
	"cmp"
	"crypto/tls"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxStreams is for gateways that put all their requests on one connection.
	maxStreams = 1 << 20
	// bodyRoom times the largest body, and messageRoom for headers and metadata, is what a message may have: a body
	// over the limit is to be answered 413, where gRPC itself would break the stream.
	bodyRoom    = 2
	messageRoom = 1 << 20

	// workers run the handlers of streams, one after the other, so that a handler finds a stack that has grown already;
	// what comes while all are busy gets a goroutine of its own.
	workers = 64
	// streamWindow and connWindow are what a gateway may send ahead of a handler, and of the connection's reader. Windows
	// that do not adapt spare a ping for nearly every message, by which gRPC measures the connection.
	streamWindow = 256 << 10
	connWindow   = 4 << 20

	// minPing is how often gateways may ping; Envoy's shortest interval that makes sense is a second.
	minPing = 500 * time.Millisecond
	// greetTimeout is what a new connection has for TLS and the first words of HTTP/2. One that says nothing holds up a drain.
	greetTimeout = 10 * time.Second
	// pingAfter and pingTimeout find gateways that went away without a word, so that their streams end.
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// Options says how gateways connect.
type Options struct {
	TLS            *tls.Config // nil is plaintext. ALPN (h2) is added by gRPC
	MaxRequestBody int         // bytes of an HTTP body, which may come in one message
	MaxReceive     int         // bytes of a message from a gateway; zero leaves room for the largest body
	MaxSend        int         // bytes of a message to a gateway; zero has no limit
}

// ServerOptions returns what gRPC needs for gateways.
func (o Options) ServerOptions() []grpc.ServerOption {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	options := []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ConnectionTimeout(greetTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(workers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(cmp.Or(o.MaxReceive, bodyRoom*o.MaxRequestBody+messageRoom)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
	}
	if o.MaxSend > 0 {
		options = append(options, grpc.MaxSendMsgSize(o.MaxSend))
	}
	return options
}
