// Package grpcserver serves gRPC to gateways of which none can hurt the others, and answers health checks (health.go). A client is the IP
// address of a gateway: of one pod, in a cluster.
//
// A Server accepts connections and gives each client a gRPC server of its own. All that a client makes the process hold is counted
// for the client: its connections, its streams, and the bytes of its messages, from the first byte of a frame that arrives
// (half messages included) to the last byte of a reply that the client has read. A handler opens its Stream with OpenStream,
// and counts what it stores elsewhere with Stream.BufferPool or Stream.AddHeldBytes.
//
// Limits are for all clients together and shared by package limits, possibly with other listeners. A client that uses no more
// than limit/n, of n clients, is always served.
//
//	resource     beyond the limit, a client above its share
//	connections  gets no further ones, and never more than 1024
//	streams      Stream.AdmitStream refuses; 256 refusals later gRPC does, without the handler
//	bytes        Stream.AdmitBytes and Stream.ReceiveMessage refuse
//	             after 1 s: the oldest evictable streams are ended, as many as it takes
//	             after 5 s: all connections of the client are closed, and a warning is logged
//	             beyond 1.25 x limit: its connections are not read, so that the total stays below
//	             1.25 x limit + a read of each connection (4 KiB, or a frame) + the shares of others
//
// Every state of a stream has a deadline:
//
//	silence, part of a length       StreamState.Timeout
//	half a message                  Params.MessageTimeout
//	a reply that nobody reads       Params.SendTimeout
//	the same, the stream has ended  Params.SendTimeout, while the client has more streams than its share
//	a connection that nobody reads  20 s for a write; after 1 s new streams are refused
//	a connection without a preface  grpc.ConnectionTimeout
//
// One goroutine, the sweeper, checks all deadlines and shares four times a second. A deadline costs a stream two atomic
// writes. After a deadline or an eviction the handler can still answer: only its reading was canceled.
//
// gRPC keeps a stream that has ended until its replies were written, so a stream counts until then, too.
//
// A handler with a Stream:
//
//	s, err := OpenStream(stream, awaitingHeaders) // a StreamState
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	if err := s.AdmitStream(); err != nil {
//		return s.SendRefusal(tooManyRequests)
//	}
//	for {
//		message, err := s.ReceiveMessage() // io.EOF, TimeoutError, MessageSizeError, limits.ErrTooManyBytes or a status of gRPC
//		...
//		s.EnterState(awaitingBody)
//		...
//		if err := s.AdmitBytes(); err != nil {
//			return s.SendRefusal(tooManyRequests)
//		}
//		...
//		err = s.SendReply(reply)
//	}
//
// gRPC takes buffers of the pool for frames of more than 1 KiB, and joins smaller ones in such a buffer when about 1000 of them wait. What
// it holds besides is counted as what it is at most: 112 KiB for a piece of a large message that is not complete, up to 448 KiB for a
// message of up to 8 KiB that is not, and 56 KiB for a stream that waits for its client to read a reply. So the count can be higher than
// the memory, by as much for each message that has begun.
//
// Not counted are about 7 KiB for each stream, 17 KiB for each connection (57 KiB with TLS) and 70 KiB for each client: the
// limits of streams and connections bound these. A hostile party with many addresses is many clients: client certificates help
// against those.
//
// The package depends on behavior of gRPC that its API does not promise: the order in which a transport uses the context of a
// tap (newStream), methods of transport streams (transportStream), and that small frames are joined (backlogBytes). The tests fail if a new
// version changes it.
package grpcserver
