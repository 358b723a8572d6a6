package chatload

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func sampleReport() *Report {
	var c collector
	for i := range 40 {
		c.add(Result{Index: i, ServedBy: "modelserver-1", TTFT: time.Duration(i+1) * ms, Duration: time.Duration(i+1) * 100 * ms, Tokens: 10, PromptTokens: 100,
			CachedTokens: 25})
	}
	for i := range 9 {
		c.add(Result{Index: 40 + i, ServedBy: "modelserver-0", TTFT: 2 * time.Second, Duration: 90 * time.Second, Tokens: 10, PromptTokens: 50})
	}
	c.add(Result{Index: 49, ServedBy: "modelserver-0", Tokens: 3, TTFT: 1, Duration: 1, Class: ClassReset, Err: errors.New("read stream: EOF")})
	c.add(Result{Index: 50, Class: ClassConnect, Err: errors.New("connection refused")})
	c.add(Result{Index: 51, Class: ClassCanceled, Err: errors.New("canceled")})
	return c.report(10 * time.Second)
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := sampleReport()
	assert.Equal(t, []ServerReport{
		{Server: "", Requests: 1, Share: 1.0 / 51, Failures: 1},
		{Server: "modelserver-0", Requests: 10, Share: 10.0 / 51, Failures: 1, Tokens: 93, PromptTokens: 450,
			TTFT: Quantiles{2 * time.Second, 2 * time.Second}, Latency: Quantiles{90 * time.Second, 90 * time.Second}},
		{Server: "modelserver-1", Requests: 40, Share: 40.0 / 51, Tokens: 400, PromptTokens: 4000, CachedTokens: 1000,
			TTFT: Quantiles{20 * ms, 38 * ms}, Latency: Quantiles{2000 * ms, 3800 * ms}},
	}, r.Servers)
	assert.Equal(t, ServerReport{Requests: 51, Share: 1, Failures: 2, Tokens: 493, PromptTokens: 4450, CachedTokens: 1000,
		TTFT: Quantiles{25 * ms, 2 * time.Second}, Latency: Quantiles{2500 * ms, 90 * time.Second}}, r.Total)
	assert.Equal(t, map[Class]int{ClassReset: 1, ClassConnect: 1}, r.Failures)
	assert.Equal(t, []int{2, 1}, []int{r.Failed(), r.Canceled})
	assert.Equal(t, 40, r.Server("modelserver-1").Requests)
	assert.Equal(t, ServerReport{Server: "modelserver-9"}, r.Server("modelserver-9"))
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, sampleReport().WriteTable(&b))
	assert.Equal(t, strings.TrimPrefix(`
server         requests    share     p50     p95  ttft p50  ttft p95  tokens  cached  failures
-                     1    2.0 %       -       -         -         -       0       -         1
modelserver-0        10   19.6 %   1m30s   1m30s    2.00 s    2.00 s      93   0.0 %         1
modelserver-1        40   78.4 %  2.00 s  3.80 s     20 ms     38 ms     400  25.0 %         0
total                51  100.0 %  2.50 s   1m30s     25 ms    2.00 s     493  22.5 %         2

10.00 s, 5.1 requests/s, 49 tokens/s, canceled 1, failures 2
  connect 1
  reset 1
  request 49 at modelserver-0: read stream: EOF
  request 50 at -: connection refused
`, "\n"), b.String())
}

func TestTableOfNothing(t *testing.T) {
	t.Parallel()
	var c collector
	r := c.report(0)
	var b strings.Builder
	require.NoError(t, r.WriteTable(&b))
	assert.Contains(t, b.String(), "total          0  0.0 %")
	assert.Contains(t, b.String(), "failures 0\n")
}

func TestExamplesAreBounded(t *testing.T) {
	t.Parallel()
	var c collector
	for i := range 100 {
		c.add(Result{Index: i, Class: ClassStatus, Err: errors.New("status 503")})
	}
	r := c.report(time.Second)
	assert.Len(t, r.Examples, maxExamples)
	assert.Equal(t, 100, r.Failures[ClassStatus])
}

func TestPrompts(t *testing.T) {
	t.Parallel()
	p := Prompts{Groups: 4, SharedTokens: 100, OwnTokens: 20, Seed: 1}
	shared := map[int]string{}
	own := map[string]bool{}
	for i := range 200 {
		messages := p.messages(i)
		require.Len(t, messages, 2)
		assert.Equal(t, []string{"system", "user"}, []string{messages[0].Role, messages[1].Role})
		assert.Equal(t, []int{400, 80}, []int{len(messages[0].Content), len(messages[1].Content)})
		assert.Equal(t, messages, p.messages(i), "messages are deterministic")
		group := p.Group(i)
		if shared[group] == "" {
			shared[group] = messages[0].Content
		}
		assert.Equal(t, shared[group], messages[0].Content)
		own[messages[1].Content] = true
	}
	assert.Len(t, shared, 4)
	assert.Len(t, own, 200)
	distinct := map[string]bool{}
	for _, s := range shared {
		distinct[s] = true
	}
	assert.Len(t, distinct, 4)
	other := Prompts{Groups: 4, SharedTokens: 100, OwnTokens: 20, Seed: 2}
	for i := range 2 {
		assert.NotEqual(t, p.messages(0)[i], other.messages(0)[i])
	}
	plain := Prompts{}
	require.Len(t, plain.messages(0), 1)
	assert.Len(t, plain.messages(0)[0].Content, defaultOwnTokens*4)
}
