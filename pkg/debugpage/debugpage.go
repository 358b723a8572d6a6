// Package debugpage serves the state of a program as JSON, and as a page for people. Pages share their layout and the formats of values.
// They load nothing else, and no client may store them.
package debugpage

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strings"

	"go.uber.org/zap"
)

//go:embed page.html
var layout string

// Page is the page of one state.
type Page struct {
	Log      *zap.Logger
	Path     string             // such as /debug/pools. With .html and .json, it has one of the two forms
	Template *template.Template // from ParseTemplate
	Indent   string             // of the JSON
	State    func() any         // what both forms show
}

// ParseTemplate returns the template of a page from its blocks "title", "style" and "body". It panics if they are invalid.
func ParseTemplate(blocks string) *template.Template {
	page := template.Must(template.New("page").Funcs(formatFuncs()).Parse(layout))
	return template.Must(page.Parse(blocks))
}

// Handlers returns the handlers by pattern of http.ServeMux.
func (p *Page) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"GET " + p.Path: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Accept")
			if strings.Contains(r.Header.Get("Accept"), "text/html") { // only browsers send this
				p.writeHTML(w)
				return
			}
			p.writeJSON(w)
		}),
		"GET " + p.Path + ".html": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { p.writeHTML(w) }),
		"GET " + p.Path + ".json": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { p.writeJSON(w) }),
	}
}

func (p *Page) writeJSON(w http.ResponseWriter) {
	setHeaders(w, "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", p.Indent)
	p.logWriteError(encoder.Encode(p.State()))
}

func (p *Page) writeHTML(w http.ResponseWriter) {
	setHeaders(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	p.logWriteError(p.Template.Execute(w, p.State()))
}

// logWriteError logs an error of writing an answer. The client has received the beginning, so it cannot get an error.
func (p *Page) logWriteError(err error) {
	if err != nil {
		p.Log.Debug("Could not write debug page", zap.Error(err))
	}
}

func setHeaders(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
