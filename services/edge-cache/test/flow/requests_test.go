//go:build system || long

package flow

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest"
)

// answer is a response of the API in JSON.
type answer struct {
	code int
	kind string
	body []byte

	Metadata metav1.ListMeta `json:"metadata"`
	Items    []struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	} `json:"items"`
	Status  any                   `json:"status"`
	Reason  string                `json:"reason"`
	Details *metav1.StatusDetails `json:"details"`
}

// ask sends a GET to an API server or to a cache.
func ask(t require.TestingT, c *rest.Config, path string, query url.Values, accept string) answer {
	client, err := rest.HTTPClientFor(c)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.Host+path+"?"+query.Encode(), nil)
	require.NoError(t, err)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	out := answer{code: response.StatusCode, kind: response.Header.Get("Content-Type"), body: body}
	if len(body) > 0 && body[0] == '{' {
		require.NoError(t, json.Unmarshal(body, &out), "%s", body)
	}
	return out
}

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

// event is one event of a watch.
type event struct {
	Type   string `json:"type"`
	Object struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
		Code     int               `json:"code"`
		Reason   string            `json:"reason"`
	} `json:"object"`
}

func (e event) rv(t require.TestingT) uint64 {
	rv, err := strconv.ParseUint(e.Object.Metadata.ResourceVersion, 10, 64)
	require.NoError(t, err)
	return rv
}

// stream opens a watch, and returns its events. The channel is closed at the end of the stream.
func stream(t *testing.T, c *rest.Config, path string, query url.Values) <-chan event {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	require.NoError(t, err)
	query.Set("watch", "true")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path+"?"+query.Encode(), nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	events := make(chan event, 4096)
	go func() {
		defer response.Body.Close()
		defer close(events)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				return
			}
			events <- e
		}
	}()
	return events
}

func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e, open := <-events:
		require.True(t, open, "the stream ended")
		return e
	case <-time.After(kubetest.Patience):
		require.Fail(t, "no event")
		return event{}
	}
}

func silentFor(t *testing.T, events <-chan event, d time.Duration) {
	t.Helper()
	select {
	case e, open := <-events:
		require.Fail(t, "unexpected event", "%v %+v", open, e)
	case <-time.After(d):
	}
}

// follow returns the changes of slices from now on, without bookmarks, which come while a test waits for something else.
func follow(t *testing.T, config *rest.Config) <-chan event {
	t.Helper()
	return stream(t, config, slicesPath, values("resourceVersion", ask(t, config, slicesPath, values(), "").Metadata.ResourceVersion))
}

var watchListQuery = []string{"sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"}

// write updates the status of an Ingress that does not exist, and returns the code.
func (e *edge) write(t require.TestingT) int {
	client, err := rest.HTTPClientFor(e.rest())
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPatch,
		e.rest().Host+"/apis/networking.k8s.io/v1/namespaces/default/ingresses/none/status", nil)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode
}

// tryAsk is ask while the cache starts: its files may not be there yet.
func tryAsk(c *rest.Config, path string) (answer, error) {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.Host+path, nil)
	if err != nil {
		return answer{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	return answer{code: response.StatusCode}, nil
}

func names(a answer) []string {
	out := []string{}
	for _, item := range a.Items {
		out = append(out, item.Metadata.Name)
	}
	return out
}

func version(t *testing.T, text string) uint64 {
	t.Helper()
	rv, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return rv
}
