package api

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"slices"
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
	const nested = "Content-Disposition: form-data; name=\"files\"\r\nContent-Type: multipart/mixed; boundary=b-1-inner"
	other := `Content-Disposition: form-data; name="language"`
	most := slices.Repeat([]string{other, "en"}, maxFormParts-1)
	tests := []struct {
		name, contentType, body, want string
		wantUnread                    error
	}{
		{name: "before a file", body: form(other, "en", named, "whisper", file, "RIFF"), want: "whisper"},
		{name: "behind a file", body: form(file, "RIFF", named, "whisper"), want: "whisper"},
		{name: "behind a large file", body: form(file, strings.Repeat("RIFF\r\n--b-", 1<<17), named, "whisper"), want: "whisper"},
		{name: "between files", body: form(file, "RIFF", named, "whisper", file, "RIFF"), want: "whisper"},
		{name: "behind a file with lines that begin like delimiters", body: form(file, "--b-1x\r\n--b-1-\r\n--b-\r\n", named, "m"), want: "m"},
		{name: "behind an empty file", body: form(file, "", named, "m"), want: "m"},
		{name: "behind an empty file without its last new line", body: "--b-1\r\n" + file + "\r\n\r\n" + form(named, "m"), want: "m"},
		{name: "behind a form in the form", body: form(nested, "--b-1-inner\r\n"+named+"\r\n\r\nx\r\n--b-1-inner--", named, "m"), want: "m"},
		{name: "in a form in the form", body: form(nested, "--b-1-inner\r\n"+named+"\r\n\r\nx\r\n--b-1-inner--")},
		{name: "a file named model", body: form(`Content-Disposition: form-data; name="model"; filename="m"`, "x")},
		{name: "an international name of a file", body: form(`Content-Disposition: form-data; name="model"; filename*=UTF-8''m`, "x")},
		{name: "the last counts", body: form(named, "a", file, "RIFF", named, "b"), want: "b"},
		{name: "other spellings", contentType: `Multipart/Form-Data; charset=utf-8; Boundary="b-1"`, body: form("Content-Type: text/plain\r\ncontent-disposition:FORM-DATA;name=model", "m"), want: "m"},
		{name: "a preamble", body: "hello\r\n" + form(named, "m"), want: "m"},
		{name: "an epilogue", body: form(named, "m") + form(named, "n"), want: "m"},
		{name: "not escaped", body: form(named, `m\u0065"`), want: `m\u0065"`},
		{name: "empty", body: form(named, "")},
		{name: "no header", body: form("", "m")},
		{name: "no field", body: "--b-1--\r\n"},
		{name: "as many fields as are allowed", body: form(append(most, named, "m")...), want: "m"},
		{name: "too many fields", body: form(append(most, named, "m", other, "en")...), wantUnread: errForm},
		{name: "a long field", body: form(other, strings.Repeat("e", 1<<20), named, "m"), want: "m"},
		{name: "long headers", body: form(other+strings.Repeat("; a=b", maxPartHead), "en", named, "m"), wantUnread: errForm},
		{name: "a line that begins like a delimiter", body: form(named, "m\r\n--b-1x"), want: "m\r\n--b-1x"},
		{name: "blanks after a delimiter", body: "--b-1 \t\r\n" + named + "\r\n\r\nm\r\n--b-1-- \r\n", want: "m"},
		{name: "text after a delimiter", body: "--b-1 x\r\n" + named + "\r\n\r\nm\r\n--b-1--\r\n", wantUnread: errForm},
		{name: "a delimiter in place of headers", body: "--b-1\r\n" + form(named, "m"), wantUnread: errForm},
		{name: "another disposition", body: form(`Content-Disposition: attachment; name="model"`, "m")},
		{name: "a long model", body: form(named, strings.Repeat("m", MaxModel+1)), wantUnread: errLongModel},
		{name: "cut off in its headers", body: form(named, "m")[:40], wantUnread: errForm},
		{name: "cut off in its value", body: form(named, "m")[:60], wantUnread: errForm},
		{name: "cut off behind the model", body: strings.TrimSuffix(form(named, "m", file, "RIFF"), "--b-1--\r\n"), wantUnread: errForm},
		{name: "another boundary", contentType: "multipart/form-data; boundary=b-2", body: form(named, "m"), wantUnread: errForm},
		{name: "a long boundary", contentType: "multipart/form-data; boundary=" + strings.Repeat("b", maxBoundary+1), body: form(named, "m"), wantUnread: errForm},
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
			require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: "/v1/audio/transcriptions", Headers: h, Body: []byte(tt.body)}, enough))
			require.ErrorIs(t, r.Unread, tt.wantUnread)
			assert.Equal(t, tt.want, r.Model)
			if tt.want != "" {
				assert.Equal(t, tt.want, tt.body[r.ModelSpan.From:r.ModelSpan.To])
				assert.True(t, r.ModelPlain)
			}
		})
	}
}

// FuzzReadForm checks that the model is the one that mime/multipart finds, whenever that reads the form.
func FuzzReadForm(f *testing.F) {
	const named, file = `Content-Disposition: form-data; name="model"`, `Content-Disposition: form-data; name="file"; filename="a"`
	f.Add(form(named, "m", file, "x"))
	f.Add(form(file, "x\r\n--b-1y", named, "m"))
	f.Add("--b-1\r\n" + file + "\r\n\r\n" + form(named, "m"))
	f.Add("preamble\r\n" + form("Content-Type: text/plain\r\nContent-Disposition: form-data; name=model", "--b-1"))
	f.Fuzz(func(t *testing.T, body string) {
		r := Request{}
		require.NoError(t, r.ParseIncoming(allParsers(t), Incoming{Path: "/v1/audio/transcriptions", Headers: Headers{{Name: "content-type", Value: formType}}, Body: []byte(body)}, enough))
		require.LessOrEqual(t, r.ModelSpan.To, len(body))
		require.Equal(t, r.Model, body[r.ModelSpan.From:r.ModelSpan.To])
		if want, ok := modelIn(body); ok && r.Unread == nil {
			require.Equal(t, want, r.Model)
		}
	})
}

// modelIn returns the model that mime/multipart finds in a form, false if that does not read it, or reads more than RFC 7578 allows: lines
// that end with LF alone.
func modelIn(body string) (model string, ok bool) {
	if strings.Contains(strings.ReplaceAll(body, "\r\n", ""), "\n") {
		return "", false
	}
	for parts := multipart.NewReader(strings.NewReader(body), "b-1"); ; {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return model, true
		}
		if err != nil {
			return "", false // mime/multipart is stricter
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return "", false
		}
		if part.FormName() == "model" && !isFile(part) {
			model = string(value)
		}
	}
}

// isFile reports whether a part has the name of a file, which may be empty.
func isFile(p *multipart.Part) bool {
	_, parameters, _ := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	_, file := parameters["filename"]
	return file
}
