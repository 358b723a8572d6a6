// Package extproc is the picker's side of Envoy's external processing protocol: for each HTTP request a gateway opens
// one stream, shows the request, and is told which endpoint takes it.
//
// Three layers, each of which can be replaced or tested alone: the Machine decides, in plain values and without I/O;
// decode and encode turn the protocol's messages into those values and back; the Server moves messages between a
// gRPC stream and a Machine.
//
// The request's side of a Machine, by what the body mode of the stream's first message says:
//
//	state      headers                    body                            trailers
//	fresh      full duplex: to collecting  refuse: 400                     refuse: 400
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
// A PICK that fails, or a body over the limit, is an immediate response, and the state is refused: it is the only
// reply to the stream's request, except in buffered mode, where it follows the reply to the headers. That one takes the
// client's own destination and private headers away, as trailers in a body's place can change headers no more.
// "Nothing" after done is for gateways that deliver the end of a body twice (envoyproxy/envoy#46237).
//
// The response's side answers headers, body and trailers one for one, until it has seen the end. A response that
// comes before the pick is the gateway's own: the request is over, and nothing is picked any more.
//
// The endpoint's lease is released when the end of the response is seen (of a buffered one: its body), or when the
// stream ends in the middle of a response. A stream that ends before, or that was not to show the body of the response, says nothing of the
// request's end: there the lease is abandoned.
package extproc
