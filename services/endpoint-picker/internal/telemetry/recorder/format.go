package recorder

// maxHash is the largest hash that is written. Readers that have numbers of 64 bits with a fraction, as JavaScript, read it exactly.
const maxHash = 1<<53 - 1

// MaxTokens limits the length of a prompt and of an answer: eight times the 128 Ki tokens of common models.
const MaxTokens = 1 << 20

// A RecordedRequest is one line.
type RecordedRequest struct {
	Timestamp *float64 `json:"timestamp"`     // arrival, in milliseconds since any moment
	Input     int      `json:"input_length"`  // tokens of the prompt
	Output    int      `json:"output_length"` // tokens of the answer
	Hashes    []uint64 `json:"hash_ids"`      // the last one may stand for less text

	Extension
}

// An Extension contains the fields that only recordings of this program have. Absent ones are unknown.
type Extension struct {
	Pool      string   `json:"pool,omitempty"`           // if the picker serves several pools
	Model     uint64   `json:"model,omitempty"`          // hash of the name
	Endpoint  *int     `json:"endpoint,omitempty"`       // number of the picked endpoint, in the order of their first requests
	Endpoints int      `json:"endpoints,omitempty"`      // of the pool, at the pick
	Streaming *bool    `json:"streaming,omitempty"`      // whether the answer came in pieces
	Status    int      `json:"status,omitempty"`         // of the answer
	TTFT      *float64 `json:"ttft_ms,omitempty"`        // from the arrival to the first content of a streamed answer
	Duration  *float64 `json:"duration_ms,omitempty"`    // from the arrival to the end of the answer
	Prompt    int      `json:"prompt_tokens,omitempty"`  // as the model server counted them; input_length is the picker's estimate
	Cached    *int     `json:"cached_tokens,omitempty"`  // of them, in the server's cache, as it reported
	Matched   int      `json:"matched_tokens,omitempty"` // of input_length, in the server's cache, as the picker estimated
}
