package api

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/logging"
)

// maxBody is the maximum size of a request's body.
const maxBody = 64 << 20

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, func(body []byte) (*generation, error) {
		var request chatRequest
		if err := s.decode(body, &request, &request.common); err != nil {
			return nil, err
		}
		prompt, err := s.chatPrompt(request.Messages, request.Tools)
		if err != nil {
			return nil, err
		}
		limit := request.MaxCompletionTokens
		if limit == nil {
			limit = request.MaxTokens
		}
		return s.newGeneration(chatDialect{}, request.common, [][]uint32{prompt}, limit)
	})
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, func(body []byte) (*generation, error) {
		var request completionRequest
		if err := s.decode(body, &request, &request.common); err != nil {
			return nil, err
		}
		prompts, err := s.textPrompts(request.Prompt)
		if err != nil {
			return nil, err
		}
		limit := request.MaxTokens
		if limit == nil {
			limit = new(int)
			*limit = 16 // the API's default, unlike that of chat
		}
		return s.newGeneration(textDialect{}, request.common, prompts, limit)
	})
}

func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, func(body []byte) (*generation, error) {
		var request responsesRequest
		if err := s.decode(body, &request, &request.common); err != nil {
			return nil, err
		}
		prompt, err := s.inputPrompt(request.Instructions, request.Input)
		if err != nil {
			return nil, err
		}
		return s.newGeneration(responsesDialect{}, request.common, [][]uint32{prompt}, request.MaxOutputTokens)
	})
}

// generate answers a request to generate text, and applies faults.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, plan func(body []byte) (*generation, error)) {
	verdict, err := s.judge(r)
	if err != nil {
		writeError(w, err)
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	g, err := plan(body)
	if err != nil {
		writeError(w, err)
		return
	}
	g.verdict = verdict
	g.id = newID(g.dialect.idPrefix(), r.Header.Get("X-Request-Id"))
	switch {
	case s.answerFault(w, r, g):
		return
	case g.options.Stream:
		err = s.stream(w, r, g)
	default:
		err = s.whole(w, r, g)
	}
	if err != nil && !g.halved(err) && r.Context().Err() == nil {
		s.Log.Debug("Aborted answer", zap.String(logging.KeyRequestID, g.id), zap.Error(err))
		panic(http.ErrAbortHandler) // closes the connection, or resets the stream
	}
}

// judge decides which faults affect a request.
func (s *Server) judge(r *http.Request) (faults.Verdict, error) {
	verdict := s.Faults.Judge()
	if !s.AllowFaultHeader {
		return verdict, nil
	}
	verdict, err := verdict.WithHeader(r.Header.Get(faults.Header))
	if err != nil {
		return verdict, badRequest("", "%s", err)
	}
	return verdict, nil
}

// whole answers with one JSON object after the last token.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, g *generation) error {
	err := s.run(r.Context(), g, func(*choice, int, int) {}, func() error { return nil })
	if g.halved(err) {
		writeBody(w, http.StatusOK, contentJSON, `{"object":"`+g.dialect.object()+`","id":"`)
	}
	if err != nil {
		return err
	}
	texts := make([]string, len(g.choices))
	for i, c := range g.choices {
		texts[i] = tokens.Decode(s.Tokenizer, c.request.Output)
	}
	writeJSON(w, http.StatusOK, g.dialect.whole(g, s.PodName, texts))
	return nil
}

// stream answers with an event for each token when the engine has made it, or with one event for all tokens that have accumulated
// since the last event.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, g *generation) error {
	w.Header().Set("Content-Type", contentEvents)
	w.WriteHeader(http.StatusOK)
	stream := &streamWriter{events: g.dialect.events(g, s.PodName), generation: g, server: s, w: w}
	stream.begin()
	if s.Habits.RoleFirst {
		for _, c := range g.choices {
			stream.opening(c.index, stream.running())
		}
	}
	if err := s.run(r.Context(), g, stream.add, stream.flush); err != nil {
		return err
	}
	stream.end(g.usage(), g.options.StreamOptions)
	return stream.flush()
}

// readBody reads the body of a request. The content type must be JSON.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, invalidBody("value_error", "'body'", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, decodeError(err)
	}
	return body, nil
}

// decode decodes a request and checks its common fields.
func (s *Server) decode(body []byte, request any, c *common) error {
	if err := json.Unmarshal(body, request); err != nil {
		return decodeError(err)
	}
	if c.StreamOptions != nil && !c.Stream {
		return invalidBody("value_error", "'body'", "Value error, Stream options can only be defined when `stream=True`.")
	}
	return s.checkModel(c.Model)
}

func (s *Server) checkModel(name *string) error {
	switch {
	case name == nil:
		return missingField("model")
	case !slices.Contains(s.Models, *name) && !slices.Contains(s.Adapters, *name):
		return modelNotFound(*name)
	}
	return nil
}
