// Package watch watches the ConfigMaps of the settings, in one namespace. It keeps those that can be in force
// (settings.Options.IsRelevant), and only the names of the others.
//
// The settings in force follow the ConfigMaps, and do not outlive them. Only changes of data count. Each content is reported once: to the
// users who edit the ConfigMap by Events, to the operator of this process by logs and an observer. So is a ConfigMap that looks like one of
// these, and is not in force.
package watch

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// Params are the parts of a Store.
type Params struct {
	settings.Options

	Log    *zap.Logger
	Client kube.Clientset
	// Event records an Event.
	Event func(about *corev1.ObjectReference, kind, reason, message string)
	// Configured receives the problem of a ConfigMap after each change of its data. An empty problem means that it is valid.
	Configured func(name, problem string)
}

// Store holds the settings in force.
type Store struct {
	p        Params
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	current  atomic.Pointer[settings.Settings]
	onChange []func(kind settings.Kind, name string)
	onLoad   []func(s *settings.Settings)
	synced   atomic.Bool

	mu      sync.Mutex // guards what follows
	builder *settings.Builder
	found   map[string]*corev1.ConfigMap // by name
	states  map[settings.Kind]*kindState
}

// kindState is what was last reported of a kind.
type kindState struct {
	inForce []*corev1.ConfigMap
	ignored map[string]string // by name: why
}

// NewStore returns a Store with the settings that are in force without any ConfigMap. Run starts it.
func NewStore(p Params) *Store {
	s := &Store{
		p: p, builder: settings.NewBuilder(p.Options), found: map[string]*corev1.ConfigMap{}, states: map[settings.Kind]*kindState{},
	}
	s.current.Store(s.builder.Settings())
	s.informer = kube.NewInformer(p.Client, p.Client.CoreV1().ConfigMaps(p.Namespace), &corev1.ConfigMap{},
		kube.InformerOptions{Transform: s.stripConfigMap})
	var err error
	s.handler, err = s.informer.AddEventHandler(controller.TypedHandler(s.loadConfigMap, func(cm *corev1.ConfigMap) []cache.ObjectName {
		if !p.IsRelevant(cm.Name) {
			return nil
		}
		return []cache.ObjectName{{Namespace: cm.Namespace, Name: cm.Name}}
	}))
	if err != nil {
		panic(fmt.Sprintf("informer of ConfigMaps: %v", err)) // only a stopped informer refuses handlers
	}
	return s
}

// stripConfigMap removes what the store does not need of a ConfigMap.
func (s *Store) stripConfigMap(obj any) (any, error) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil // the tombstone of a deleted object
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID,
		ResourceVersion: cm.ResourceVersion}}
	if s.p.IsRelevant(cm.Name) {
		kept.Data, kept.BinaryData = cm.Data, cm.BinaryData
	}
	return kept, nil
}

// Settings returns the settings in force.
func (s *Store) Settings() *settings.Settings { return s.current.Load() }

// OnChange registers a function to call after each change of the data in force, with the name of the ConfigMap that caused it. The
// ConfigMaps that exist at the start are no change. Calls for ConfigMaps of different kinds may overlap. Call it before Run.
func (s *Store) OnChange(f func(kind settings.Kind, name string)) { s.onChange = append(s.onChange, f) }

// OnLoad registers a function to call with settings that come into force, also with those at the start. It must not block. Call it before
// Run.
func (s *Store) OnLoad(f func(s *settings.Settings)) { s.onLoad = append(s.onLoad, f) }

// Run watches the ConfigMaps until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { s.informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), s.handler.HasSynced) {
		s.loadAll()
	}
	group.Wait()
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

// loadAll puts what was listed in force, all at once: the order of events does not decide which of several names counts.
func (s *Store) loadAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range settings.Kinds() {
		if s.loadKind(kind); len(s.states[kind].inForce) == 0 {
			s.reportMissing(kind)
		}
	}
	s.builder.FixPrometheus()
	s.synced.Store(true)
}

// loadConfigMap handles the content of a ConfigMap, and its end.
func (s *Store) loadConfigMap(key cache.ObjectName) {
	name := key.Name
	s.mu.Lock()
	delete(s.found, name)
	obj, _, _ := s.informer.GetStore().GetByKey(key.String()) // a store in memory does not fail
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		s.found[name] = cm
	}
	var changed []settings.Kind
	for _, kind := range settings.Kinds() {
		if s.synced.Load() && s.p.HasKind(kind, name) && s.loadKind(kind) {
			changed = append(changed, kind)
		}
	}
	s.mu.Unlock()
	for _, kind := range changed {
		for _, f := range s.onChange {
			f(kind, name)
		}
	}
}

// loadKind puts the ConfigMaps of a kind that count in force, and reports whether the data changed.
func (s *Store) loadKind(kind settings.Kind) bool {
	before := cmp.Or(s.states[kind], &kindState{})
	selected := s.p.Select(kind, slices.Collect(maps.Keys(s.found)))
	after := &kindState{ignored: selected.Ignored}
	var sources []settings.Source
	for _, name := range selected.InForce {
		cm := s.found[name]
		after.inForce = append(after.inForce, cm)
		sources = append(sources, settings.Source{Name: name, Data: cm.Data})
	}
	s.states[kind] = after
	changed := !slices.EqualFunc(before.inForce, after.inForce, sameData)
	if changed || !slices.EqualFunc(before.inForce, after.inForce, sameName) {
		warnings := s.builder.SetSources(kind, sources...)
		s.current.Store(s.builder.Settings())
		for _, f := range s.onLoad {
			f(s.Settings())
		}
		s.reportLeft(kind, before, after)
		for _, cm := range after.inForce {
			s.reportLoaded(cm, append(binaryWarnings(cm), warnings...))
		}
	}
	s.reportIgnored(before, after)
	return changed
}

func sameName(a, b *corev1.ConfigMap) bool { return a.Name == b.Name }

func sameData(a, b *corev1.ConfigMap) bool {
	return maps.Equal(a.Data, b.Data) && maps.EqualFunc(a.BinaryData, b.BinaryData, bytes.Equal)
}

// reportLeft reports ConfigMaps that are no longer in force.
func (s *Store) reportLeft(kind settings.Kind, before, after *kindState) {
	for _, cm := range before.inForce {
		problem := ""
		switch {
		case slices.ContainsFunc(after.inForce, func(o *corev1.ConfigMap) bool { return o.Name == cm.Name }):
			continue
		case len(after.inForce) > 0:
			s.p.Log.Info("Another ConfigMap of the same kind is in force", s.nameField(after.inForce[0].Name),
				zap.String("before", s.fullName(cm.Name)))
		default:
			if isUsual(kind) {
				problem = "ConfigMap " + s.fullName(cm.Name) + " is not in force any more"
			}
			s.p.Log.Warn("ConfigMap was deleted, or is not in force any more", s.nameField(cm.Name), zap.String("consequence", consequenceOf(kind)))
		}
		s.p.Configured(s.fullName(cm.Name), problem)
	}
}

// reportIgnored reports ConfigMaps that look like those in force, and are not, and the end of that.
func (s *Store) reportIgnored(before, after *kindState) {
	for _, name := range slices.Sorted(maps.Keys(after.ignored)) {
		if why := after.ignored[name]; before.ignored[name] != why {
			s.p.Log.Warn("Ignored a ConfigMap", s.nameField(name), zap.String("warning", why))
			s.p.Event(referenceTo(s.found[name]), corev1.EventTypeWarning, settings.ReasonUnknown, why)
			s.p.Configured(s.fullName(name), "ConfigMap "+s.fullName(name)+": "+why)
		}
	}
	for name := range before.ignored {
		_, ignored := after.ignored[name]
		if !ignored && !slices.ContainsFunc(after.inForce, func(cm *corev1.ConfigMap) bool { return cm.Name == name }) {
			s.p.Configured(s.fullName(name), "")
		}
	}
}

// reportMissing reports that no ConfigMap of a kind is in force at the start.
func (s *Store) reportMissing(kind settings.Kind) {
	looked := s.p.SearchNames(kind)
	log := s.p.Log.Info
	if isUsual(kind) {
		log = s.p.Log.Warn
	}
	log("No ConfigMap of a kind is in force", s.nameField(looked[0]), zap.Strings("names", looked),
		zap.String("consequence", consequenceOf(kind)))
	if !slices.ContainsFunc(looked, func(name string) bool { return s.states[kind].ignored[name] != "" }) {
		s.p.Configured(s.fullName(looked[0]), "")
	}
}

// consequences say what is in force without a ConfigMap of a kind, where it is no defaults.
var consequences = map[settings.Kind]string{
	settings.Limits:       "no limit is in force",
	settings.Classes:      "models have no targets, and are scaled for a stable load",
	settings.Accelerators: "replicas cost what their variants say, or all the same",
}

func consequenceOf(kind settings.Kind) string {
	return cmp.Or(consequences[kind], "defaults are in force")
}

// isUsual reports whether an installation usually has a ConfigMap of the kind, so that its absence can be a mistake.
func isUsual(kind settings.Kind) bool {
	return kind == settings.Accelerators || kind == settings.Classes
}

// reportLoaded reports what is in force, and what is not.
func (s *Store) reportLoaded(cm *corev1.ConfigMap, warnings []settings.Warning) {
	about, problem := referenceTo(cm), ""
	for _, w := range warnings {
		if problem == "" && w.Reason != settings.ReasonUnknown {
			problem = "ConfigMap " + s.fullName(cm.Name) + ": " + w.String()
		}
		s.p.Log.Warn("Refused part of the configuration", s.nameField(cm.Name), zap.String("reason", w.Reason),
			zap.String("warning", w.String()))
		s.p.Event(about, corev1.EventTypeWarning, w.Reason, w.String())
	}
	s.p.Configured(s.fullName(cm.Name), problem)
	s.p.Log.Info("Loaded configuration", s.nameField(cm.Name))
	if len(warnings) == 0 {
		s.p.Event(about, corev1.EventTypeNormal, configmap.ReasonLoaded, "the configuration is in force")
	}
}

func referenceTo(cm *corev1.ConfigMap) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, ResourceVersion: cm.ResourceVersion,
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

func (s *Store) nameField(name string) zap.Field {
	return zap.String("configMap", s.fullName(name))
}
