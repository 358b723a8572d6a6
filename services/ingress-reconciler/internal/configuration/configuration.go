// Package configuration keeps what is configured, as two ConfigMaps say: ours, and OME's, which is read only.
//
//	a ConfigMap                   what is in force
//	can be read                   what it says
//	cannot                        what it said before; a log line, an Event and a gauge say so, once for each text
//	is gone                       what it said before: it may be on its way back; a log line and the gauge say so
//	was never there: OME's        nothing is inherited, and there is no OME
//	was never there, or was
//	never good: ours              nothing: services stay as they are
package configuration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Keys of the ConfigMaps.
const (
	Key    = "config"
	KeyOME = "ingress"
)

// Reasons of Events.
const (
	ReasonLoaded  = "ConfigurationLoaded"
	ReasonInvalid = "InvalidConfiguration"
	ReasonUnknown = "UnknownConfiguration"
)

// reporter makes Events of the ConfigMaps.
type reporter interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// observer is told what is wrong with a ConfigMap that was read, if anything is.
type observer interface {
	Configured(name, problem string)
}

// Params is what New needs.
type Params struct {
	Log           *zap.Logger
	Client        kubernetes.Interface
	Ours, OME     cache.ObjectName // empty: there is none
	ClusterDomain string
	Reporter      reporter
	Observer      observer
}

// Store is what is configured.
type Store struct {
	p         Params
	informers []cache.SharedIndexInformer
	handlers  []cache.ResourceEventHandlerRegistration
	onChange  func()

	mu   sync.Mutex
	ours source
	omes source

	document  *settings.Document  // the last good one
	inherited *settings.Inherited // likewise
}

// source is what is known of one ConfigMap.
type source struct {
	seen    bool
	good    bool              // something of it is in force
	digest  [sha256.Size]byte // of the text that was told of, and whether there was one
	problem string            // what is wrong with it now; empty: nothing
}

// New returns a Store that knows nothing before Run.
func New(p Params) *Store {
	s := &Store{p: p}
	if p.Ours.Name == "" {
		s.document = &settings.Document{}
	} else {
		s.watch(p.Ours, &s.ours, s.loadOurs)
	}
	if p.OME.Name != "" {
		s.watch(p.OME, &s.omes, s.loadOME)
	}
	return s
}

// OnChange has f called whenever something else is in force, or something is wrong that was not, before Run.
func (s *Store) OnChange(f func()) { s.onChange = f }

// watch watches one ConfigMap.
func (s *Store) watch(name cache.ObjectName, from *source, load func(*corev1.ConfigMap)) {
	informer := coreinformers.NewFilteredConfigMapInformer(s.p.Client, name.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
	})
	changed := func(obj any) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			load(cm)
		}
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: func(any) { s.lose(name, from) },
	})
	if err != nil {
		panic(fmt.Sprintf("informer of ConfigMap %s: %v", name, err)) // not reached: it has not ended
	}
	s.informers, s.handlers = append(s.informers, informer), append(s.handlers, handler)
}

// Run watches until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, informer := range s.informers {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Wait()
}

// HasSynced reports whether both ConfigMaps were read, or are known not to be there.
func (s *Store) HasSynced() bool {
	return !slices.ContainsFunc(s.handlers, func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
}

// Current returns what is in force, and what is wrong with what should be. Without a Document nothing is.
func (s *Store) Current() (c settings.Config, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	problem = s.ours.problem
	if problem == "" {
		problem = s.omes.problem
	}
	if s.document == nil && problem == "" {
		problem = fmt.Sprintf("there is no ConfigMap %s", s.p.Ours)
	}
	c = settings.Config{Document: s.document, Inherited: s.inherited, ClusterDomain: s.p.ClusterDomain}
	if s.omes.problem != "" && !s.omes.good {
		c.Document = nil // who makes routes is not known
	}
	return c, problem
}

// loadOurs takes our configuration.
func (s *Store) loadOurs(cm *corev1.ConfigMap) {
	s.load(cm, Key, &s.ours, func(text string) (warnings []string, err error) {
		d, warnings, err := settings.Parse([]byte(text))
		if err == nil {
			s.document = d
		}
		return warnings, err
	})
}

// loadOME takes OME's.
func (s *Store) loadOME(cm *corev1.ConfigMap) {
	s.load(cm, KeyOME, &s.omes, func(text string) ([]string, error) {
		inherited, err := settings.ParseInherited([]byte(text), s.p.ClusterDomain)
		if err == nil {
			s.inherited = inherited
		}
		return nil, err
	})
}

// load reads the text of a ConfigMap, unless it is the one that was read last, and tells of it.
func (s *Store) load(cm *corev1.ConfigMap, key string, from *source, parse func(string) ([]string, error)) {
	text, found := cm.Data[key]
	if s.same(from, fmt.Sprint(found, text)) {
		return
	}
	s.mu.Lock()
	var warnings []string
	err := fmt.Errorf("it has no key %q", key)
	if found {
		warnings, err = parse(text)
	}
	from.problem, from.good = "", from.good || err == nil
	if err != nil {
		from.problem = fmt.Sprintf("ConfigMap %s/%s: %s", cm.Namespace, cm.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	problem := from.problem
	s.mu.Unlock()
	s.tell(cm, problem, warnings)
	s.changed()
}

// lose takes that a ConfigMap is gone.
func (s *Store) lose(name cache.ObjectName, from *source) {
	s.mu.Lock()
	from.seen, from.problem = false, ""
	if from.good {
		from.problem = fmt.Sprintf("ConfigMap %s is gone", name)
	}
	problem := from.problem
	s.mu.Unlock()
	s.p.Observer.Configured(name.String(), problem)
	s.p.Log.Warn("A ConfigMap is gone, what was in force stays so", zap.Stringer("configMap", name))
	s.changed()
}

// changed tells who waits for changes.
func (s *Store) changed() {
	if s.onChange != nil {
		s.onChange()
	}
}

// same reports whether a text is the one that was seen before, and remembers it.
func (s *Store) same(from *source, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := sha256.Sum256([]byte(text))
	same := from.seen && from.digest == digest
	from.seen, from.digest = true, digest
	return same
}

// tell tells whoever edits a ConfigMap, and whoever looks after this process.
func (s *Store) tell(cm *corev1.ConfigMap, problem string, warnings []string) {
	log := s.p.Log.With(zap.String("configMap", cm.Namespace+"/"+cm.Name))
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, ResourceVersion: cm.ResourceVersion,
	}
	s.p.Observer.Configured(cm.Namespace+"/"+cm.Name, problem)
	for _, w := range warnings {
		log.Warn("Passed over a part of the configuration", zap.String("warning", w))
		s.p.Reporter.Event(about, corev1.EventTypeWarning, ReasonUnknown, "passed over a part of the configuration: "+w)
	}
	if problem != "" {
		log.Warn("Refused a configuration, what was in force stays so", zap.String("problem", problem))
		s.p.Reporter.Event(about, corev1.EventTypeWarning, ReasonInvalid, problem+"; what was in force stays so")
		return
	}
	log.Info("Loaded configuration")
	s.p.Reporter.Event(about, corev1.EventTypeNormal, ReasonLoaded, "the configuration is in force")
}
