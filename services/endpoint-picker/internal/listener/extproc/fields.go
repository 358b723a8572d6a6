package extproc

import "fairlead.dev/pkg/protoscan"

// tag is a field's number and wire type, as encoded before the field's value.
type tag = protoscan.Tag

// Wire types of fields.
const (
	integer = protoscan.Varint
	fixed64 = protoscan.Fixed64
	message = protoscan.Bytes
)

// Fields of the messages to read and write, grouped by message. They come from
// envoy/service/ext_proc/v3/external_processor.proto, envoy/config/core/v3/base.proto and google/protobuf/struct.proto.
const (
	// ProcessingRequest, with inKinds
	inMetadataContext = 8<<3 | message
	inProtocolConfig  = 11<<3 | message

	// ProcessingResponse, with outTags
	outImmediateResponse = 7<<3 | message
	outDynamicMetadata   = 8<<3 | message

	// HttpHeaders
	headersMap         = 1<<3 | message
	headersEndOfStream = 3<<3 | integer

	// HttpBody, StreamedBodyResponse
	bodyBytes       = 1<<3 | message
	bodyEndOfStream = 2<<3 | integer

	// HeaderMap, HeaderValue
	mapHeaders = 1<<3 | message
	headerKey  = 1<<3 | message
	headerText = 2<<3 | message
	headerRaw  = 3<<3 | message

	// HeaderMutation, HeaderValueOption
	mutationSet    = 1<<3 | message
	mutationRemove = 2<<3 | message
	optionHeader   = 1<<3 | message
	optionAction   = 3<<3 | integer
	overwriteOrAdd = 2 // an action

	// HeadersResponse and BodyResponse, CommonResponse, BodyMutation
	replyCommon      = 1<<3 | message
	commonHeaders    = 2<<3 | message
	commonBody       = 3<<3 | message
	commonClearRoute = 5<<3 | integer
	mutationWhole    = 1<<3 | message
	mutationStreamed = 3<<3 | message

	// ImmediateResponse, HttpStatus
	immediateStatus  = 1<<3 | message
	immediateHeaders = 2<<3 | message
	immediateBody    = 3<<3 | message
	immediateDetails = 5<<3 | message
	statusCode       = 1<<3 | integer

	// ProtocolConfiguration
	configRequestBody  = 1<<3 | integer
	configResponseBody = 2<<3 | integer

	// Metadata, Struct, Value, ListValue, and the entries of maps
	mapEntry    = 1<<3 | message // of Metadata's filters and of Struct's fields
	valueNumber = 2<<3 | fixed64
	valueText   = 3<<3 | message
	valueStruct = 5<<3 | message
	valueList   = 6<<3 | message
	listValues  = 1<<3 | message
	entryKey    = 1<<3 | message
	entryValue  = 2<<3 | message
)

// inKinds maps fields of a ProcessingRequest to parts of an exchange.
var inKinds = [...]Kind{
	2<<3 | message: RequestHeaders, 4<<3 | message: RequestBody, 6<<3 | message: RequestTrailers,
	3<<3 | message: ResponseHeaders, 5<<3 | message: ResponseBody, 7<<3 | message: ResponseTrailers,
}

// outTags maps parts of an exchange to fields of a ProcessingResponse.
var outTags = [...]tag{
	RequestHeaders: 1<<3 | message, RequestBody: 3<<3 | message, RequestTrailers: 5<<3 | message,
	ResponseHeaders: 2<<3 | message, ResponseBody: 4<<3 | message, ResponseTrailers: 6<<3 | message,
}

// bodyModes maps values of ProcessingMode.BodySendMode to body modes.
var bodyModes = [...]BodyMode{0: None, 1: Chunked, 2: Buffered, 3: Buffered, 4: FullDuplex, 5: FullDuplex}
