// Package live watches the ConfigMaps of the settings. It lists and watches only their names, in one namespace.
//
// The settings in force follow the ConfigMaps, and do not outlive them: a pass without a required ConfigMap keeps the replicas of all
// variants. Only changes of data count. Each content is reported once: to the users who edit the ConfigMap by Events, to the operator of
// this process by logs and an observer.
package live

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// recorder records Events.
type recorder interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// observer receives the problem of a ConfigMap, empty for none, after each change of its data.
type observer interface {
	Configured(name, problem string)
}

// Params are the parts of a Store.
type Params struct {
	settings.Options

	Log      *zap.Logger
	Client   kube.Clientset
	Recorder recorder
	Observer observer
}

// Store holds the settings in force.
type Store struct {
	p        Params
	watches  []*watch
	current  atomic.Pointer[settings.Settings]
	onChange []func(kind settings.Kind, name string)
	synced   atomic.Bool

	mu      sync.Mutex // guards what follows
	builder *settings.Builder
	found   map[string]*corev1.ConfigMap        // by name
	inForce map[settings.Kind]*corev1.ConfigMap // nil: none
}

// watch watches one ConfigMap.
type watch struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
}

// NewStore returns a Store with the settings that are in force without any ConfigMap. Run starts it.
func NewStore(p Params) *Store {
	s := &Store{p: p, builder: settings.NewBuilder(p.Options), found: map[string]*corev1.ConfigMap{}, inForce: map[settings.Kind]*corev1.ConfigMap{}}
	s.current.Store(s.builder.Settings())
	for _, kind := range settings.Kinds() {
		for _, name := range p.NamesOf(kind) {
			s.watches = append(s.watches, s.newWatch(kind, name))
		}
	}
	return s
}

func (s *Store) newWatch(kind settings.Kind, name string) *watch {
	w := &watch{informer: kube.NewInformer(s.p.Client, s.p.Client.CoreV1().ConfigMaps(s.p.Namespace), &corev1.ConfigMap{}, kube.InformerOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})}
	set := func(obj any) {
		if cm, ok := obj.(*corev1.ConfigMap); ok && cm.Name == name {
			s.set(kind, name, cm)
		}
	}
	var err error
	w.handler, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingObjectToName(obj); err == nil && key.Name == name {
				s.set(kind, name, nil)
			}
		},
	})
	if err != nil {
		panic(fmt.Sprintf("informer of ConfigMap %s: %v", name, err)) // only a stopped informer refuses handlers
	}
	return w
}

// Settings returns the settings in force.
func (s *Store) Settings() *settings.Settings { return s.current.Load() }

// OnChange registers a function to call after each change of the data in force, with the name of the ConfigMap that caused it. What is
// there at the start is no change. Calls for ConfigMaps of different kinds may overlap. Call it before Run.
func (s *Store) OnChange(f func(kind settings.Kind, name string)) { s.onChange = append(s.onChange, f) }

// Run watches the ConfigMaps until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var all sync.WaitGroup
	var synced []cache.InformerSynced
	for _, w := range s.watches {
		all.Go(func() { w.informer.RunWithContext(ctx) })
		synced = append(synced, w.handler.HasSynced)
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		s.begin()
	}
	all.Wait()
}

// HasSynced reports whether all ConfigMaps were read, or do not exist.
func (s *Store) HasSynced() bool { return s.synced.Load() }

// Unsynced returns the namespace of the ConfigMaps until HasSynced is true, then nothing.
func (s *Store) Unsynced() []string {
	if s.HasSynced() {
		return nil
	}
	return []string{"ConfigMaps of " + s.p.Namespace}
}

// begin puts what was listed in force, all at once: the order of watches does not decide which of several names counts.
func (s *Store) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range settings.Kinds() {
		if !s.load(kind) {
			s.reportMissing(kind)
		}
	}
	s.synced.Store(true)
}

// set handles the content of a ConfigMap, nil if it does not exist.
func (s *Store) set(kind settings.Kind, name string, cm *corev1.ConfigMap) {
	s.mu.Lock()
	if cm == nil {
		delete(s.found, name)
	} else {
		s.found[name] = cm
	}
	changed := false
	if s.synced.Load() {
		changed = s.load(kind)
	}
	s.mu.Unlock()
	if changed {
		for _, f := range s.onChange {
			f(kind, name)
		}
	}
}

// load puts the first ConfigMap of a kind that exists in force, and reports whether the data changed.
func (s *Store) load(kind settings.Kind) bool {
	before, after := s.inForce[kind], s.first(kind)
	s.inForce[kind] = after
	if before == nil && after == nil {
		return false
	}
	changed := before == nil || after == nil || !sameData(before, after)
	if !changed && before.Name == after.Name {
		return false
	}
	if before != nil && (after == nil || before.Name != after.Name) {
		s.leave(kind, before, after)
	}
	if after != nil {
		warnings := s.builder.Set(kind, after.Name, after.Data)
		s.report(after, append(binaryWarnings(after), warnings...))
	} else {
		s.builder.Set(kind, "", nil)
	}
	s.current.Store(s.builder.Settings())
	return changed
}

// first returns the first ConfigMap of a kind that exists, or nil.
func (s *Store) first(kind settings.Kind) *corev1.ConfigMap {
	for _, name := range s.p.NamesOf(kind) {
		if cm := s.found[name]; cm != nil {
			return cm
		}
	}
	return nil
}

func sameData(a, b *corev1.ConfigMap) bool {
	return maps.Equal(a.Data, b.Data) && maps.EqualFunc(a.BinaryData, b.BinaryData, bytes.Equal)
}

// leave reports that a ConfigMap is no longer in force.
func (s *Store) leave(kind settings.Kind, before, after *corev1.ConfigMap) {
	problem := ""
	if after == nil {
		if isRequired(kind) {
			problem = "ConfigMap " + s.fullName(before.Name) + " was deleted"
		}
		s.p.Log.Warn("ConfigMap was deleted", s.about(before.Name), zap.String("consequence", consequence(kind)))
	} else {
		s.p.Log.Info("Another ConfigMap of the same kind is in force", s.about(after.Name), zap.String("before", s.fullName(before.Name)))
	}
	s.p.Observer.Configured(s.fullName(before.Name), problem)
}

// reportMissing reports that there is no ConfigMap of a kind at the start.
func (s *Store) reportMissing(kind settings.Kind) {
	name, problem := s.p.NamesOf(kind)[0], ""
	if isRequired(kind) {
		problem = "ConfigMap " + s.fullName(name) + " does not exist"
		s.p.Log.Warn("A required ConfigMap does not exist: create it", s.about(name), zap.String("consequence", consequence(kind)))
	} else {
		s.p.Log.Info("There is no ConfigMap: defaults are in force", s.about(name))
	}
	s.p.Observer.Configured(s.fullName(name), problem)
}

func consequence(kind settings.Kind) string {
	switch {
	case isRequired(kind):
		return "all variants keep their replicas until it exists"
	case kind == settings.Limits:
		return "no limit is in force"
	default:
		return "defaults are in force"
	}
}

func isRequired(kind settings.Kind) bool {
	return kind == settings.Accelerators || kind == settings.Classes
}

// report reports what is in force, and what is not.
func (s *Store) report(cm *corev1.ConfigMap, warnings []settings.Warning) {
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, ResourceVersion: cm.ResourceVersion,
	}
	problem := ""
	for _, w := range warnings {
		if problem == "" && w.Reason != settings.ReasonUnknown {
			problem = "ConfigMap " + s.fullName(cm.Name) + ": " + w.String()
		}
		s.p.Log.Warn("Refused part of the configuration", s.about(cm.Name), zap.String("reason", w.Reason), zap.String("warning", w.String()))
		s.p.Recorder.Event(about, corev1.EventTypeWarning, w.Reason, w.String())
	}
	s.p.Observer.Configured(s.fullName(cm.Name), problem)
	s.p.Log.Info("Loaded configuration", s.about(cm.Name))
	if len(warnings) == 0 {
		s.p.Recorder.Event(about, corev1.EventTypeNormal, configmap.ReasonLoaded, "the configuration is in force")
	}
}

// binaryWarnings warns of keys with values that are not text: kubectl writes files of another encoding there.
func binaryWarnings(cm *corev1.ConfigMap) []settings.Warning {
	keys := slices.Sorted(maps.Keys(cm.BinaryData))
	if len(keys) == 0 {
		return nil
	}
	return []settings.Warning{{
		Key: keys[0], Reason: settings.ReasonInvalid, Message: fmt.Sprintf("ignored: %d keys have binary data; save the files as UTF-8", len(keys)),
	}}
}

func (s *Store) fullName(name string) string { return s.p.Namespace + "/" + name }

func (s *Store) about(name string) zap.Field {
	return zap.String("configMap", s.fullName(name))
}
