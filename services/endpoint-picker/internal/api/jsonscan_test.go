package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// valid goes through a text without a look at it.
func valid(text string) error {
	var s Scanner
	s.Reset([]byte(text))
	s.SkipValue()
	return s.CheckEnd()
}

func texts() []string {
	return []string{
		``, ` `, `null`, `true`, `false`, `nul`, `nullx`, `tru e`, `0`, `-0`, `01`, `-`, `1.`, `.5`, `1.5`, `1e`, `1e5`, `1E+5`, `1e-`, `-1.25e-3`, `+1`, `NaN`,
		`""`, `"a"`, `"a`, `"\"`, `"\""`, `"\\"`, `"\\\""`, `"\\\"`, `"\u00e9\n\t\b\f\r\/"`, `"\u00g0"`, `"\u00e"`, `"\x"`, "\"\x00\"", "\"\x1f\"", "\"\x7f\xff\"", "\"a\nb\"",
		`[]`, `[`, `]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2]`, ` [ 1 , [ ] , { } ] `, `[1}`, `{]`,
		`{}`, `{`, `{"a"}`, `{"a":}`, `{"a":1}`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a":1,"b":[{"c":null}]}`, `{a:1}`, `{1:1}`, `{"a":1}x`, "{}\x00", `{} {}`,
		strings.Repeat("[", 10000) + strings.Repeat("]", 10000), strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
		`"` + strings.Repeat(`text \n\" `, 100) + `"`, `"` + strings.Repeat("x", 100) + "\x01" + strings.Repeat("x", 100) + `"`,
	}
}

func TestScanner_AcceptsWhatIsJSON(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		assert.Equal(t, json.Valid([]byte(text)), valid(text) == nil, "%.60q: %v", text, valid(text))
	}
}

func TestScanner_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ give, want string }{
		{give: `{"a": tru}`, want: `at byte 6: unexpected 't'`},
		{give: `{"a": 1,`, want: `at byte 8: unexpected end`},
		{give: `{"a": "b`, want: `at byte 8: unexpected end`},
		{give: `{"a": 1} x`, want: `at byte 9: text after the value`},
		{give: `["\x"]`, want: `at byte 2: invalid escape in a string`},
		{give: "[\"a\nb\"]", want: `at byte 3: control character in a string`},
		{give: strings.Repeat("[", 10001), want: `at byte 10000: nested too deep`},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, valid(tt.give), tt.want)
		})
	}
}

// FuzzValid checks that what encoding/json takes is taken, and nothing else.
func FuzzValid(f *testing.F) {
	for _, text := range texts() {
		if len(text) < 1000 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.Equal(t, json.Valid([]byte(text)), valid(text) == nil)
	})
}

// rebuild decodes a text by the scanner alone.
func rebuild(s *Scanner) any {
	switch s.NextKind() {
	case String:
		span, escaped := s.ReadString()
		var text string
		if s.err == nil {
			if err := json.Unmarshal(s.text[span.From-1:span.To+1], &text); err != nil {
				s.setError(err)
			}
			if !escaped && strings.Contains(string(s.TextOf(span)), `\`) {
				s.setError(fmt.Errorf("escapes not told of"))
			}
		}
		return text
	case Array:
		s.EnterValue()
		list := []any{}
		for s.NextElement() {
			list = append(list, rebuild(s))
		}
		return list
	case Object:
		s.EnterValue()
		members := map[string]any{}
		for key, ok := s.NextKey(); ok; key, ok = s.NextKey() {
			name := strings.ToValidUTF8(string(key), "\uFFFD")
			members[name] = rebuild(s)
		}
		return members
	case Invalid:
		return nil
	default:
		var v any
		if span := s.SkipValue(); s.err == nil {
			if err := json.Unmarshal(s.TextOf(span), &v); err != nil {
				s.setError(err)
			}
		}
		return v
	}
}

// FuzzRebuild checks that everything is found at its place.
func FuzzRebuild(f *testing.F) {
	for _, text := range texts() {
		if len(text) < 1000 {
			f.Add(text)
		}
	}
	f.Add(`{"mod\u0065l": "m", "model": 2, "messages": [{"role": "user", "content": "a\"b"}], "stop": null}`)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ToValidUTF8(text, "") != text {
			return // encoding/json mends such text in ways of its own
		}
		var want any
		wrong := json.Unmarshal([]byte(text), &want)
		var s Scanner
		s.Reset([]byte(text))
		got := rebuild(&s)
		if err := s.CheckEnd(); err != nil {
			if wrong == nil {
				t.Fatal(err)
			}
			return
		}
		require.NoError(t, wrong)
		require.Equal(t, want, got)
	})
}

func TestScanner_EachMember(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`{"a":1,"b":{"c":2}}`: "a=1 b={\"c\":2} ", `{}`: "", `[{"a":1}]`: "", `"a"`: ""} {
		var s Scanner
		s.Reset([]byte(text))
		got := ""
		s.EachMember(func(key []byte) { got += string(key) + "=" + string(s.TextOf(s.SkipValue())) + " " })
		assert.Equal(t, want, got)
		assert.NoError(t, s.CheckEnd(), text)
	}
}

func TestScanner_ReadsAgainWithoutAllocation(t *testing.T) {
	text := []byte(`{"model": "m", "messages": [{"role": "user", "content": "` + strings.Repeat("word ", 1000) + `"}], "stream": true}`)
	var s Scanner
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s.Reset(text)
		s.EnterValue()
		for _, ok := s.NextKey(); ok; _, ok = s.NextKey() {
			s.SkipValue()
		}
		if s.CheckEnd() != nil {
			t.Error(s.CheckEnd())
		}
	}))
}

func TestScanner_UnescapesKeysWithoutAllocation(t *testing.T) {
	text := []byte(`{` + strings.Repeat(`"\u006dod\u0065l": 1, `, 100) + `"x": 1}`)
	var s Scanner
	known := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s.Reset(text)
		s.EnterValue()
		known = 0
		for key, ok := s.NextKey(); ok; key, ok = s.NextKey() {
			if string(key) == "model" {
				known++
			}
			s.SkipValue()
		}
	}))
	assert.Equal(t, 100, known)
}

func TestScanner_LeavesVeryLongKeysAsWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		n    int // escapes
		want string
	}{
		{name: "longest that is unescaped", n: maxEscapedKey / longEscape, want: strings.Repeat("a", maxEscapedKey/longEscape)},
		{name: "longer", n: maxEscapedKey/longEscape + 1, want: strings.Repeat(`\u0061`, maxEscapedKey/longEscape+1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s Scanner
			s.Reset([]byte(`{"` + strings.Repeat(`\u0061`, tt.n) + `": 1}`))
			s.EnterValue()
			key, ok := s.NextKey()
			require.True(t, ok)
			assert.Equal(t, tt.want, string(key))
			assert.LessOrEqual(t, cap(s.key), 2*maxEscapedKey)
		})
	}
}

func TestUnescape(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "nothing"},
		{name: "plain", give: "meta-llama/Llama-3", want: "meta-llama/Llama-3"},
		{name: "slash", give: `meta-llama\/Llama-3`, want: "meta-llama/Llama-3"},
		{name: "short escapes", give: `\"\\\/\b\f\n\r\t`, want: "\"\\/\b\f\n\r\t"},
		{name: "long escapes, in either case", give: `\u00e9\u00E9\u0026\u4e2d`, want: "éé&中"},
		{name: "surrogate pair", give: `a\ud83d\ude00b`, want: "a😀b"},
		{name: "first half alone", give: `\ud83d`, want: "\uFFFD"},
		{name: "first half before other text", give: `\ud83dxu0041`, want: "\uFFFDxu0041"},
		{name: "first half before another escape", give: `\ud83d\u0041\n`, want: "\uFFFDA\n"},
		{name: "invalid escapes", give: `\x\u00g0\ud83d\u12\`, want: `\x\u00g0` + "\uFFFD" + `\u12\`},
		{name: "second half alone", give: `\ude00\ud83d`, want: "\uFFFD\uFFFD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, string(Unescape(nil, []byte(tt.give))))
			assert.Equal(t, "before "+tt.want, string(Unescape([]byte("before "), []byte(tt.give))))
		})
	}
}

// FuzzUnescape checks that a string has the text that encoding/json finds.
func FuzzUnescape(f *testing.F) {
	f.Add(`a\/b\u00e9\ud83d\ude00\ud83d\n`)
	f.Add(`\u0026\\u0026`)
	f.Fuzz(func(t *testing.T, raw string) {
		var want string
		got := Unescape(nil, []byte(raw))
		if strings.ToValidUTF8(raw, "") != raw || json.Unmarshal([]byte(`"`+raw+`"`), &want) != nil {
			return
		}
		require.Equal(t, want, string(got))
		require.LessOrEqual(t, len(raw), MaxEscape*max(len(got), 1))
	})
}

func BenchmarkValue(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	var words strings.Builder
	for words.Len() < 67_000 {
		words.WriteString([]string{"word ", "another ", "Résumé ", `\"quoted\" `, `\n`, "a ", "longer-than-that "}[random.IntN(7)])
	}
	text := []byte(`{"model":"m","messages":[{"role":"user","content":"` + words.String() + `"}]}`)
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		var s Scanner
		for b.Loop() {
			s.Reset(text)
			s.SkipValue()
		}
	})
	b.Run("encoding/json.Valid", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			json.Valid(text)
		}
	})
}

// short is the shortest spelling of a string.
func short(raw string, buffer int) string {
	var all []byte
	for piece := range Short([]byte(raw), make([]byte, 0, buffer)) {
		all = append(all, piece...)
	}
	return string(all)
}

func TestShort(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "nothing"},
		{name: "plain", give: "Résumé 中文", want: "Résumé 中文"},
		{name: "escapes that JSON requires", give: `\"\\\b\f\n\r\t`, want: `\"\\\b\f\n\r\t`},
		{name: "the same, long", give: `\u0022\u005C\u0008\u000c\u000A\u000d\u0009`, want: `\"\\\b\f\n\r\t`},
		{name: "PHP", give: `https:\/\/a`, want: "https://a"},
		{name: "HTML", give: `\u003ca\u003E\u0026`, want: "<a>&"},
		{name: "other scripts", give: `\u00e9\u4E2D\ud83d\ude00`, want: "é中😀"},
		{name: "control characters", give: `\u0001\u001F\u007f`, want: "\x01\x1f\x7f"},
		{name: "half a pair", give: `\ud83d \ude00`, want: "\uFFFD \uFFFD"},
		{name: "an escaped backslash before a u", give: `\\u00e9`, want: `\\u00e9`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for buffer := utf8.UTFMax; buffer < 20; buffer++ {
				assert.Equal(t, tt.want, short(tt.give, buffer))
			}
			var s Scanner
			s.Reset([]byte(`"` + tt.give + `"`))
			s.ReadString()
			require.NoError(t, s.CheckEnd())
			assert.Equal(t, len(tt.give)-len(tt.want), s.Surplus())
		})
	}
}

// FuzzShort checks that strings with the same text have the same shortest spelling, and that its length is known before.
func FuzzShort(f *testing.F) {
	f.Add(`a\/b\u00e9\ud83d\ude00\ud83d\n`, uint8(4))
	f.Add(`\u0022\\\u005cu0041\u0000`, uint8(7))
	f.Fuzz(func(t *testing.T, raw string, buffer uint8) {
		var s Scanner
		s.Reset([]byte(`"` + raw + `"`))
		s.ReadString()
		if s.CheckEnd() != nil {
			_ = short(raw, utf8.UTFMax+int(buffer)) // it ends
			return
		}
		got := short(raw, utf8.UTFMax+int(buffer))
		require.Len(t, got, len(raw)-s.Surplus())
		text := string(Unescape(nil, []byte(raw)))
		require.Equal(t, text, string(Unescape(nil, []byte(got))))
		escaped := strings.Builder{}
		for _, unit := range utf16.Encode([]rune(text)) {
			fmt.Fprintf(&escaped, `\u%04X`, unit)
		}
		if strings.ToValidUTF8(text, "") == text {
			require.Equal(t, got, short(escaped.String(), 64))
		}
	})
}

func TestScanner_FailsWithoutAllocationIfTerse(t *testing.T) {
	var s Scanner
	s.Terse = true
	for _, text := range []string{`{"a":`, `{"a" 1}`, `["\x"]`, `"` + "\n" + `"`, `{} {}`, strings.Repeat("[", 20_000), `-`} {
		text := []byte(text)
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			s.Reset(text)
			s.SkipValue()
			_ = s.CheckEnd()
		}), "%.20s", text)
		require.ErrorIs(t, s.Err(), errInvalid, "%.20s", text)
	}
}

func TestCutLine(t *testing.T) {
	t.Parallel()
	tests := []struct{ give, wantLine, wantRest string }{
		{give: ``},
		{give: `a`, wantLine: `a`},
		{give: `a\nb\nc`, wantLine: `a\n`, wantRest: `b\nc`},
		{give: `a\u000ab`, wantLine: `a\u000a`, wantRest: `b`},
		{give: `a\u000A`, wantLine: `a\u000A`},
		{give: `\\new\\\nb`, wantLine: `\\new\\\n`, wantRest: `b`},
		{give: `\ud83d\ude00\nb`, wantLine: `\ud83d\ude00\n`, wantRest: `b`},
		{give: `a\`, wantLine: `a\`},
	}
	for _, tt := range tests {
		line, rest := cutLine([]byte(tt.give))
		assert.Equal(t, tt.wantLine, string(line), tt.give)
		assert.Equal(t, tt.wantRest, string(rest), tt.give)
	}
}

func TestHasPrefix(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]bool{
		`name`: true, `names`: true, `\u006eame`: true, `n\u0061\u006d\u0065s`: true, `nam`: false, ``: false, `\u006e`: false, `\\u006eame`: false, `\u00`: false,
		`nam\u0065\u0`: true, ` name`: false, `\ud83dname`: false,
	} {
		assert.Equal(t, want, hasShortPrefix([]byte(give), "name", make([]byte, 0, 16)), give)
	}
}

// FuzzCutLine checks that lines and prefixes are those of the text.
func FuzzCutLine(f *testing.F) {
	f.Add(`x-a: b\u000ac\nd`)
	f.Add(`\u0078-\\na\ud83d\u000a`)
	f.Fuzz(func(t *testing.T, raw string) {
		var s Scanner
		s.Reset([]byte(`"` + raw + `"`))
		s.ReadString()
		line, rest := cutLine([]byte(raw))
		require.Equal(t, raw, string(line)+string(rest))
		if s.CheckEnd() != nil || strings.ToValidUTF8(raw, "") != raw {
			return
		}
		text := string(Unescape(nil, []byte(raw)))
		wantLine, wantRest, found := strings.Cut(text, "\n")
		if found {
			wantLine += "\n"
		}
		require.Equal(t, wantLine, string(Unescape(nil, line)))
		require.Equal(t, wantRest, string(Unescape(nil, rest)))
		require.Equal(t, strings.HasPrefix(text, "x-a"), hasShortPrefix([]byte(raw), "x-a", make([]byte, 0, 16)))
	})
}

func TestScanner_AcceptsNumbersOfPythonIfAsked(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give string
		want bool
	}{
		{give: `[NaN, Infinity, -Infinity, {"a": NaN}]`, want: true},
		{give: `NaN`, want: true},
		{give: `-NaN`}, {give: `Nan`}, {give: `Inf`}, {give: `--Infinity`}, {give: `InfinityNaN`}, {give: `+Infinity`}, {give: `N`}, {give: `-`},
	}
	for _, tt := range tests {
		t.Run(tt.give, func(t *testing.T) {
			t.Parallel()
			s := Scanner{NonFinite: true}
			s.Reset([]byte(tt.give))
			if tt.give == "NaN" {
				assert.Equal(t, Number, s.NextKind())
			}
			s.SkipValue()
			assert.Equal(t, tt.want, s.CheckEnd() == nil)
			require.Error(t, valid(tt.give), "not without")
		})
	}
}

func TestScanner_SkipsAByteOrderMarkIfAsked(t *testing.T) {
	t.Parallel()
	var s Scanner
	s.Reset([]byte("\uFEFF{}"))
	s.SkipBOM()
	assert.Equal(t, Span{From: 3, To: 5}, s.SkipValue())
	require.NoError(t, s.CheckEnd())
	require.Error(t, valid("\uFEFF{}"))
}
