package configmap

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/kube"
)

// Reasons of the Events about a ConfigMap.
const (
	ReasonLoaded  = "ConfigurationLoaded"
	ReasonInvalid = "InvalidConfiguration"
)

// recorder records Events.
type recorder interface {
	Event(about *corev1.ObjectReference, kind, reason, message string)
}

// observer receives the problem of a ConfigMap, empty for none, after each read or deletion of the ConfigMap.
type observer interface {
	Configured(name, problem string)
}

// Params are the parts of a Store.
type Params[T any] struct {
	Log      *zap.Logger
	Client   kube.Clientset
	Name     cache.ObjectName
	Key      string
	Decode   Decode[T]
	Recorder recorder
	Observer observer
}

// Store holds the last valid value of one key of one ConfigMap. It lists and watches only that ConfigMap. Without a name, it reads nothing
// and never has a value.
type Store[T any] struct {
	*LastGood[T]

	p        Params[T]
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	onChange []func()
}

// NewStore returns a Store without a value. Run starts it.
func NewStore[T any](p Params[T]) *Store[T] {
	s := &Store[T]{LastGood: NewLastGood("ConfigMap "+p.Name.String(), p.Decode), p: p}
	if p.Name.Name == "" {
		return s
	}
	s.p.Log = p.Log.With(zap.Stringer("configMap", p.Name))
	s.informer = kube.NewInformer(p.Client, p.Client.CoreV1().ConfigMaps(p.Name.Namespace), &corev1.ConfigMap{}, kube.InformerOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.Name.Name).String(),
	})
	set := func(obj any) {
		if cm, ok := obj.(*corev1.ConfigMap); ok {
			s.loadConfigMap(cm)
		}
	}
	var err error
	s.handler, err = s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set, UpdateFunc: func(_, obj any) { set(obj) }, DeleteFunc: func(any) { s.loseConfigMap() },
	})
	if err != nil {
		panic(fmt.Sprintf("informer of ConfigMap %s: %v", p.Name, err)) // only a stopped informer refuses handlers
	}
	return s
}

// OnChange registers a function to call, from one goroutine, after each new text and after a deletion. Call it before Run.
func (s *Store[T]) OnChange(f func()) { s.onChange = append(s.onChange, f) }

// Run watches the ConfigMap until ctx ends.
func (s *Store[T]) Run(ctx context.Context) {
	if s.informer != nil {
		s.informer.RunWithContext(ctx)
	}
}

// HasSynced reports whether the ConfigMap was read, or does not exist.
func (s *Store[T]) HasSynced() bool { return s.handler == nil || s.handler.HasSynced() }

// Unsynced returns the name of the ConfigMap until HasSynced is true, then nothing.
func (s *Store[T]) Unsynced() []string {
	if s.HasSynced() {
		return nil
	}
	return []string{"ConfigMap " + s.p.Name.String()}
}

// loadConfigMap handles the current content of a ConfigMap.
func (s *Store[T]) loadConfigMap(cm *corev1.ConfigMap) {
	text, found := cm.Data[s.p.Key]
	var changed bool
	var err error
	if found {
		changed, err = s.Set([]byte(text))
	} else {
		err = fmt.Errorf("key %q is missing", s.p.Key)
		changed = s.Reject(err)
	}
	if changed {
		s.reportText(cm, err)
		s.notifyChanged()
	}
}

// loseConfigMap handles the deletion of the ConfigMap.
func (s *Store[T]) loseConfigMap() {
	s.MarkDeleted()
	_, present, problem := s.Current()
	s.p.Observer.Configured(s.p.Name.String(), problem)
	s.p.Log.Warn("ConfigMap was deleted", zap.Bool("lastValidInForce", present))
	s.notifyChanged()
}

func (s *Store[T]) notifyChanged() {
	for _, f := range s.onChange {
		f()
	}
}

// reportText informs the users who edit the ConfigMap by Events, and the operator of this process by logs.
func (s *Store[T]) reportText(cm *corev1.ConfigMap, err error) {
	about := events.Reference(corev1.SchemeGroupVersion.WithKind("ConfigMap"), cm)
	_, present, problem := s.Current()
	s.p.Observer.Configured(s.p.Name.String(), problem)
	if err != nil {
		s.p.Log.Warn("Refused configuration", zap.Bool("lastValidInForce", present), zap.Error(err))
		consequence := "; the last valid configuration stays in force"
		if !present {
			consequence = "; no configuration is in force"
		}
		s.p.Recorder.Event(about, corev1.EventTypeWarning, ReasonInvalid, problem+consequence)
		return
	}
	s.p.Log.Info("Loaded configuration")
	s.p.Recorder.Event(about, corev1.EventTypeNormal, ReasonLoaded, "the configuration is in force")
}
