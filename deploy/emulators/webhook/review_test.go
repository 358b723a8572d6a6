package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReview(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, giveBody string
		wantCode       int
		wantAllowed    bool
		wantMessage    string
	}{
		{name: "object without the label is admitted", giveBody: `{"request":{"uid":"1","object":{"metadata":{"labels":{"a":"b"}}}}}`, wantCode: 200, wantAllowed: true},
		{name: "labeled object is refused with the label's value", giveBody: `{"request":{"uid":"1","object":{"metadata":{"labels":{"fairlead.dev/refuse":"no"}}}}}`, wantCode: 200, wantMessage: "no"},
		{name: "deletion has no object and is admitted", giveBody: `{"request":{"uid":"1"}}`, wantCode: 200, wantAllowed: true},
		{name: "review without a request is a bad request", giveBody: `{}`, wantCode: 400},
		{name: "text is a bad request", giveBody: `hello`, wantCode: 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			answer(refuseLabeled, http.StatusForbidden)(w, httptest.NewRequest(http.MethodPost, "/validate", strings.NewReader(tt.giveBody)))
			require.Equal(t, tt.wantCode, w.Code)
			if w.Code != http.StatusOK {
				return
			}
			var got admissionReview
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			assert.Equal(t, "1", got.Response.UID)
			assert.Equal(t, tt.wantAllowed, got.Response.Allowed)
			if tt.wantMessage != "" {
				assert.Equal(t, tt.wantMessage, got.Response.Status.Message)
			}
		})
	}
}
