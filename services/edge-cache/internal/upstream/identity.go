package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identityAge is the time for which an identity counts as checked: the reflectors all connect at once after an outage.
const identityAge = time.Second

// identity is the UID of the namespace kube-system: no two clusters share it.
type identity struct {
	mu      sync.Mutex
	uid     atomic.Pointer[string]
	checked time.Time
	warned  bool
	changed func(uid string)
}

// SetIdentity sets the identity of the cluster that the stores are from, and the function that is called when the API server is of another
// one. The function runs before any reflector goes on.
func (c *Connection) SetIdentity(uid string, changed func(uid string)) {
	c.identity.mu.Lock()
	defer c.identity.mu.Unlock()
	c.identity.uid.Store(&uid)
	c.identity.changed = changed
}

// Identity returns the identity of the cluster that the stores are from, empty if it is not known.
func (c *Connection) Identity() string {
	if uid := c.identity.uid.Load(); uid != nil {
		return *uid
	}
	return ""
}

// verifyIdentity checks that the API server is of the same cluster as before.
func (c *Connection) verifyIdentity(ctx context.Context) error {
	i := &c.identity
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.checked) < identityAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	response, err := c.Do(ctx, Request{
		Source: "identity", Path: "/api/v1/namespaces/kube-system",
		Header: http.Header{"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}},
	})
	if err != nil {
		return fmt.Errorf("read the identity of the cluster: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusForbidden {
		if !i.warned {
			i.warned = true
			c.params.Log.Warn("May not read the namespace kube-system, so another cluster at the same address is not noticed: grant get")
		}
		i.checked = time.Now()
		return nil
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read the identity of the cluster: %w", ReadStatus(response))
	}
	var namespace metav1.PartialObjectMetadata
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&namespace); err != nil || namespace.UID == "" {
		return fmt.Errorf("read the identity of the cluster: the answer has no UID (%v)", err)
	}
	i.checked = time.Now()
	c.setIdentity(string(namespace.UID))
	return nil
}

func (c *Connection) setIdentity(uid string) {
	was := c.Identity()
	if was == uid {
		return
	}
	if was != "" {
		c.params.Log.Warn("API server is of another cluster: everything is listed again", zap.String("was", was), zap.String("is", uid))
	}
	c.identity.uid.Store(&uid)
	if c.identity.changed != nil {
		c.identity.changed(uid)
	}
}
