package api

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const formType = "multipart/form-data; boundary=b-1"

// form returns a form of fields, each with its headers and its value.
func form(fields ...string) string {
	var body strings.Builder
	for i := 0; i < len(fields); i += 2 {
		body.WriteString("--b-1\r\n" + fields[i] + "\r\n\r\n" + fields[i+1] + "\r\n")
	}
	return body.String() + "--b-1--\r\n"
}

func TestReadForm(t *testing.T) {
	t.Parallel()
	const named, file = `Content-Disposition: form-data; name="model"`, "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav"
	other := `Content-Disposition: form-data; name="language"`
	many := []string{}
	for range maxFormFields {
		many = append(many, other, "en")
	}
	tests := []struct {
		name, contentType, body, want string
		wantUnread                    error
	}{
		{name: "before a file", body: form(other, "en", named, "whisper", file, "RIFF"), want: "whisper"},
		{name: "behind a file", body: form(file, "RIFF", named, "whisper")},
		{name: "a file named model", body: form(`Content-Disposition: form-data; name="model"; filename="m"`, "x")},
		{name: "an international name of a file", body: form(`Content-Disposition: form-data; name="model"; filename*=UTF-8''m`, "x")},
		{name: "the last counts", body: form(named, "a", named, "b"), want: "b"},
		{name: "other spellings", contentType: `Multipart/Form-Data; charset=utf-8; Boundary="b-1"`, body: form("Content-Type: text/plain\r\ncontent-disposition:FORM-DATA;name=model", "m"), want: "m"},
		{name: "a preamble", body: "hello\r\n" + form(named, "m"), want: "m"},
		{name: "not escaped", body: form(named, `m\u0065"`), want: `m\u0065"`},
		{name: "empty", body: form(named, "")},
		{name: "no header", body: form("", "m")},
		{name: "too many fields", body: form(append(many, named, "m")...)},
		{name: "too long fields", body: form(other, strings.Repeat("e", maxFormBytes), named, "m")},
		{name: "a line that begins like a delimiter", body: form(named, "m\r\n--b-1x\r\n")},
		{name: "blanks after a delimiter", body: "--b-1 \t\r\n" + named + "\r\n\r\nm\r\n--b-1 \r\n", want: "m"},
		{name: "another disposition", body: form(`Content-Disposition: attachment; name="model"`, "m")},
		{name: "a long model", body: form(named, strings.Repeat("m", MaxModel+1)), wantUnread: errLongModel},
		{name: "cut off", body: form(named, "m")[:60]},
		{name: "another boundary", contentType: "multipart/form-data; boundary=b-2", body: form(named, "m")},
		{name: "no boundary", contentType: "multipart/form-data", body: form(named, "m")},
		{name: "another type", contentType: "multipart/mixed; boundary=b-1", body: form(named, "m")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := Headers{{Name: "content-type", Value: formType}}
			if tt.contentType != "" {
				h[0].Value = tt.contentType
			}
			var r Request
			require.NoError(t, r.Parse(allParsers(t), Incoming{Path: "/v1/audio/transcriptions", Headers: h, Body: []byte(tt.body)}, enough))
			require.ErrorIs(t, r.Unread, tt.wantUnread)
			assert.Equal(t, tt.want, r.Model)
			if tt.want != "" {
				assert.Equal(t, tt.want, tt.body[r.ModelSpan.From:r.ModelSpan.To])
				assert.True(t, r.ModelPlain)
			}
		})
	}
}

// FuzzReadForm checks that the model is that which mime/multipart finds, if it reads the form.
func FuzzReadForm(f *testing.F) {
	f.Add(form(`Content-Disposition: form-data; name="model"`, "m", `Content-Disposition: form-data; name="file"; filename="a"`, "x"))
	f.Add("preamble\r\n" + form("Content-Type: text/plain\r\nContent-Disposition: form-data; name=model", "--b-1"))
	f.Fuzz(func(t *testing.T, body string) {
		r := Request{}
		require.NoError(t, r.Parse(allParsers(t), Incoming{Path: "/v1/audio/transcriptions", Headers: Headers{{Name: "content-type", Value: formType}}, Body: []byte(body)}, enough))
		require.LessOrEqual(t, r.ModelSpan.To, len(body))
		require.Equal(t, r.Model, body[r.ModelSpan.From:r.ModelSpan.To])
		if r.Model == "" {
			return
		}
		found := false
		for parts := multipart.NewReader(strings.NewReader(body), "b-1"); ; {
			part, err := parts.NextPart()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return // mime/multipart is stricter
			}
			value, err := io.ReadAll(part)
			if err != nil {
				return
			}
			found = found || part.FormName() == "model" && bytes.Equal(value, []byte(r.Model))
		}
		require.True(t, found)
	})
}
