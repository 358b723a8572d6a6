// Package extproc is the picker's side of Envoy's external processing protocol: for each HTTP request a gateway opens one
// stream, sends the request, and receives the endpoint for it.
//
// It has three layers that can be replaced and tested separately. The Machine decides, on plain values and without I/O.
// decodeMessage and encodeReply convert between the protocol's messages and these values. The Server moves messages between a gRPC
// stream and a Machine.
//
// The request's side of a Machine, by the body mode in the stream's first message:
//
//	state      headers                    body                            trailers
//	fresh      tunnel: PICK, reply, open   refuse: 400                     refuse: 400
//	           full duplex: to collecting
//	           buffered: reply, awaiting
//	           others: PICK, reply, open
//	           at end: PICK, reply, done
//	collecting wrong                      keep; at end: PICK, headers,    PICK, headers, body without end,
//	                                      whole body; done                trailers; done
//	awaiting   wrong                      PICK, reply; open, at end done  PICK, reply; done
//	open       wrong                      reply; at end done              reply; done
//	done       wrong                      nothing                         nothing
//	refused    nothing                    nothing                         nothing
//
// A PICK that fails, or a body over the limit, is an immediate response, and the state is refused: it is the only reply to
// the stream's request, except in buffered mode, where it follows the reply to the headers. That reply removes the client's
// own destination and private headers, because trailers in place of a body cannot change headers any more. "Nothing" after
// done is for gateways that deliver the end of a body twice (envoyproxy/envoy#46237).
//
// A tunnel (WebSocket, or another upgrade) has no end until it is closed, and the model server answers before anything follows its headers.
// Its pieces pass in both directions as they come. A request with a body that offers a tunnel is no tunnel until the model server takes the
// offer (RFC 9110, 7.8). In full duplex its body ends with its length, and the state is open, as the gateway does not say that it has
// ended.
//
// The response's side answers headers, body and trailers one by one until the end. A response before the pick comes from the
// gateway itself: the request is over, and nothing is picked.
//
// The endpoint's lease is released at the end of the response (of a buffered one: of its body), or when the stream ends
// during a response. If a stream ends earlier, or the gateway does not send the body of the response, the end of the request
// is unknown: the lease is abandoned.
package extproc
