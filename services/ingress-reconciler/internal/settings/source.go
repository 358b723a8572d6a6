package settings

import "fmt"

// Keys of the ConfigMaps: ours, and OME's.
const (
	Key    = "config"
	KeyOME = "ingress"
)

// lastGood returns the last valid value of a text, whether there is one, and what is wrong with the text at present.
type lastGood[T any] interface {
	Current() (value T, present bool, problem string)
}

// Source combines our configuration and OME's.
type Source struct {
	Ours          lastGood[*Document]  // nil if there is no ConfigMap of ours: then the defaults and OME's configuration are in force
	Name          string               // of our ConfigMap, for messages
	OME           lastGood[*Inherited] // nil if OME's ConfigMap is not read
	ClusterDomain string
}

// Current returns the configuration in force, and what is wrong with the one that should be. Without a Document nothing is in
// force: our ConfigMap does not exist or never was valid, or OME's never was valid, so that it is not known whether OME writes
// routes. If OME's ConfigMap does not exist, nothing is inherited.
func (s *Source) Current() (c Config, problem string) {
	c = Config{Document: &Document{}, ClusterDomain: s.ClusterDomain}
	if s.Ours != nil {
		var present bool
		c.Document, present, problem = s.Ours.Current()
		if !present && problem == "" {
			problem = fmt.Sprintf("ConfigMap %s does not exist", s.Name)
		}
	}
	if s.OME == nil {
		return c, problem
	}
	inherited, present, problemOME := s.OME.Current()
	c.Inherited = inherited
	if !present && problemOME != "" {
		c.Document = nil
	}
	if problem == "" {
		problem = problemOME
	}
	return c, problem
}
