package settings

import (
	"cmp"
	"fmt"
)

// Keys in the ConfigMap of this program and in OME's ConfigMap.
const (
	Key    = "config"
	KeyOME = "ingress"
)

// lastGood returns the last valid value of a text, whether a valid value exists, and the problem of the current text.
type lastGood[T any] interface {
	Current() (value T, present bool, problem string)
}

// Source combines the configuration of this program and OME's.
type Source struct {
	Document      lastGood[*Document]
	Name          string // of the ConfigMap; empty if none is configured: the defaults and OME's configuration are in force
	Inherited     lastGood[*Inherited]
	ClusterDomain string
}

// Current returns the configuration in force, and the problem of a newer configuration that is not in force. A nil Document means
// that no configuration is in force: the ConfigMap does not exist or has never been valid, or OME's ConfigMap has never been valid,
// so it is unknown whether OME creates routes. If OME's ConfigMap does not exist, no values are inherited.
func (s *Source) Current() (c Config, problem string) {
	c = Config{Document: &Document{}, ClusterDomain: s.ClusterDomain}
	if s.Name != "" {
		var present bool
		c.Document, present, problem = s.Document.Current()
		if !present && problem == "" {
			problem = fmt.Sprintf("ConfigMap %s does not exist", s.Name)
		}
	}
	inherited, present, problemOME := s.Inherited.Current()
	c.Inherited = inherited
	if !present && problemOME != "" {
		c.Document = nil
	}
	return c, cmp.Or(problem, problemOME)
}
