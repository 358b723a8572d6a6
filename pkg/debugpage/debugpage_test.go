package debugpage

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

type name struct {
	Name string `json:"name"`
}

func newPage(log *zap.Logger) *Page {
	return &Page{
		Log: log, Path: "/debug/names", Indent: " ", State: func() any { return name{"<a>"} },
		Template: ParseTemplate(`{{define "title"}}names{{end}}{{define "style"}}b { margin: 0; }{{end}}{{define "body"}}<b>{{.Name}}: {{count 1000}}</b>{{end}}`),
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	const page, document = "text/html; charset=utf-8", "application/json"
	tests := []struct{ name, path, accept, wantType string }{
		{name: "a program", path: "/debug/names", accept: "*/*", wantType: document},
		{name: "a browser", path: "/debug/names", accept: "text/html,*/*;q=0.8", wantType: page},
		{name: "the page", path: "/debug/names.html", accept: "*/*", wantType: page},
		{name: "the JSON", path: "/debug/names.json", accept: "text/html", wantType: document},
	}
	wantBody := map[string]string{document: "{\n \"name\": \"\\u003ca\\u003e\"\n}\n", page: "<b>&lt;a&gt;: 1,000</b></html>\n"}
	mux := http.NewServeMux()
	for pattern, handler := range newPage(zap.NewNop()).Handlers() {
		mux.Handle(pattern, handler)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequest(http.MethodGet, tt.path, nil)
			request.Header.Set("Accept", tt.accept)
			response := httptest.NewRecorder()
			mux.ServeHTTP(response, request)
			require.Equal(t, http.StatusOK, response.Code)
			assert.Equal(t, tt.wantType, response.Header().Get("Content-Type"))
			assert.Equal(t, "no-store", response.Header().Get("Cache-Control"))
			assert.Equal(t, "nosniff", response.Header().Get("X-Content-Type-Options"))
			assert.Equal(t, tt.wantType == page, response.Header().Get("Content-Security-Policy") == "default-src 'none'; style-src 'unsafe-inline'")
			assert.Contains(t, response.Body.String(), wantBody[tt.wantType])
		})
	}
}

type brokenWriter struct{ http.ResponseWriter }

// Write implements io.Writer.
func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestClientIsGone(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	handlers := newPage(zap.New(core)).Handlers()
	for _, pattern := range []string{"GET /debug/names.html", "GET /debug/names.json"} {
		handlers[pattern].ServeHTTP(brokenWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
	}
	assert.Equal(t, 2, logs.FilterMessage("Could not write debug page").Len())
}
