package informers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/variant-autoscaler/internal/schedule"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Annotations and labels of objects that declare variants.
const (
	// AnnotationManaged, with the value "true", makes a HorizontalPodAutoscaler or a ScaledObject a variant.
	AnnotationManaged = "llm-d.ai/managed"
	AnnotationModel   = "llm-d.ai/model-id"
	AnnotationCost    = "llm-d.ai/variant-cost"
	// AnnotationProfile is the JSON of a variantProfile, for objects whose spec has none.
	AnnotationProfile = "fairlead.dev/variant-profile"
	// AnnotationSchedule is the JSON of a schedule, for objects whose spec has none.
	AnnotationSchedule = "fairlead.dev/schedule"
	// AnnotationForce triggers a pass when its value changes. It is for a VariantAutoscaling.
	AnnotationForce = "force-reconcile"
	// AnnotationExclude, with the value "true", excludes an object, or all objects of a namespace.
	AnnotationExclude = "wva.llmd.ai/exclude"
	// LabelInstance names the installation that an object is for.
	LabelInstance = "wva.llmd.ai/controller-instance"
	// LabelAccelerator is a label of all objects that declare variants, and an annotation of those whose spec has no accelerator.
	LabelAccelerator = "inference.optimization/acceleratorName"
)

const (
	trueValue = "true"

	// metric is the name of the series that tells an autoscaler the replicas, and scaler a part of the usual addresses of the external
	// scaler. An object that uses neither in its own name is not known to be driven by this program.
	metric = "wva_desired_replicas"
	scaler = "variant-autoscaler"

	// maxProfile and maxStatus bound JSON. Complete ones have 200 bytes and 3 kB.
	maxProfile = 4 << 10
	maxStatus  = 16 << 10
)

// Declaration is an object that declares a variant.
type Declaration struct {
	Identity
	UID        types.UID
	Source     snapshot.Source
	Generation int64
	Created    time.Time
	// Spec is what the object says of its variant. It is nil if it declares none for this installation: it is not annotated, is excluded or
	// being deleted, is for another installation, or is the HorizontalPodAutoscaler of a ScaledObject.
	Spec *Spec
	// Schedule is what Spec.Schedule says.
	Schedule []snapshot.Schedule
	// Force is the value of AnnotationForce.
	Force string
	// Multiplies reports that the object uses the metric with the type Value, which multiplies the present replicas by it.
	Multiplies bool
	// Scales is the workload whose replicas a HorizontalPodAutoscaler or a ScaledObject writes, also one without annotations. Follows
	// reports that it takes them from this program, and OfKEDA that KEDA made it for a ScaledObject. IdleAtZero reports that it does
	// nothing while the workload has no replicas: a HorizontalPodAutoscaler whose minimum is not 0, which older API servers refuse, or one
	// that says so.
	Scales     Owner
	Follows    bool
	OfKEDA     bool
	IdleAtZero bool
	// Pause is what KEDA does not do for a ScaledObject.
	Pause Pause
	// Status is the JSON of the status of a VariantAutoscaling, nil if it has none, or more than 16 KiB.
	Status []byte
}

// Spec is what an object says of its variant. It is comparable.
type Spec struct {
	Name         string // of the variant, if it is not that of the object
	Target       snapshot.Target
	Model        string
	VariantID    string
	Accelerator  string
	Cards        Number
	Cost         string
	Class        ClassRef
	Profile      Profile
	Min, Max     Number
	IdleReplicas Number // of a ScaledObject
	Schedule     string // the JSON
	Seed         bool   // a VariantAutoscaling with all fields of the shape that has profiles
	Invalid      string // says which field could not be read, and why
}

// ClassRef refers to a key of a ConfigMap with a service class.
type ClassRef struct{ Name, Key string }

// Profile has the texts of a variantProfile.
type Profile struct {
	Set                       bool
	Alpha, Beta, Gamma, Delta string
	MaxBatch                  Number
}

func readDeclaration(source snapshot.Source, instance string, u *unstructured.Unstructured) *Declaration {
	d := &Declaration{Identity: identityOf(u), UID: u.GetUID(), Source: source}
	f := newFields(u)
	declared := declaresVariant(source, instance, u, f)
	readScales(d, u, f)
	d.Follows = d.Follows || declared
	if !declared {
		return d
	}
	d.Generation, d.Created = u.GetGeneration(), u.GetCreationTimestamp().Time
	d.Spec = &Spec{Target: snapshot.Target{
		APIVersion: f.textAt("spec", "scaleTargetRef", "apiVersion"), Kind: f.textAt("spec", "scaleTargetRef", "kind"),
		Name: f.textAt("spec", "scaleTargetRef", "name"),
	}}
	switch source {
	case snapshot.VariantAutoscaling:
		readVariantAutoscaling(d.Spec, f)
		readSchedule(d, f, scheduleOf(f), "spec.schedule")
		d.Force, d.Status = f.annotation(AnnotationForce), statusOf(f)
	case snapshot.HorizontalPodAutoscaler:
		readAnnotations(d, f)
		d.Spec.Min, d.Spec.Max = f.numberAt("spec", "minReplicas"), f.numberAt("spec", "maxReplicas")
		d.Multiplies = usesMetric(f, "Value")
	case snapshot.ScaledObject:
		readAnnotations(d, f)
		readTrigger(d.Spec, f)
		d.Spec.Min, d.Spec.Max = f.numberAt("spec", "minReplicaCount"), f.numberAt("spec", "maxReplicaCount")
		d.Spec.IdleReplicas = f.numberAt("spec", "idleReplicaCount")
		d.Multiplies = usesTrigger(f, "Value")
	}
	d.Spec.Invalid = f.invalid
	return d
}

// declaresVariant reports whether an object declares a variant for this installation.
func declaresVariant(source snapshot.Source, instance string, u *unstructured.Unstructured, f *fields) bool {
	if u.GetDeletionTimestamp() != nil || f.annotation(AnnotationExclude) == trueValue || f.label(LabelInstance) != instance {
		return false
	}
	switch source {
	case snapshot.VariantAutoscaling:
		return true
	case snapshot.HorizontalPodAutoscaler:
		if isMadeByKEDA(u, f) {
			return false
		}
	case snapshot.ScaledObject:
		if f.annotation(AnnotationManaged) == "" && len(declaringTriggers(f)) > 0 {
			return true
		}
	}
	return f.annotation(AnnotationManaged) == trueValue
}

// Metadata of a trigger that declares a variant.
const (
	metadataModel   = "modelID"
	metadataCost    = "variantCost"
	metadataVariant = "variantName"
)

// declaringTriggers returns the triggers of external scalers that name a model.
func declaringTriggers(f *fields) []*fields {
	var declaring []*fields
	for g := range f.itemsAt("spec", "triggers") {
		g.prefix = "spec.triggers: "
		if kind := g.textAt("type"); (kind == "external" || kind == "external-push") && g.textAt("metadata", metadataModel) != "" {
			declaring = append(declaring, g)
		}
	}
	return declaring
}

// readTrigger reads the metadata of a trigger that declares a variant. The variant has the name of its target, unless the trigger gives it
// another one. Annotations must agree with the metadata.
func readTrigger(s *Spec, f *fields) {
	triggers := declaringTriggers(f)
	if len(triggers) == 0 {
		return
	}
	if len(triggers) > 1 {
		f.setInvalid("spec.triggers", fmt.Sprintf("has %d triggers with the metadata %s: only one declares a variant", len(triggers),
			metadataModel))
	}
	trigger := triggers[0]
	s.Name = cmp.Or(trigger.textAt("metadata", metadataVariant), s.Target.Name)
	for _, field := range []struct {
		key, annotation string
		to              *string
	}{{metadataModel, AnnotationModel, &s.Model}, {metadataCost, AnnotationCost, &s.Cost}} {
		value := trigger.textAt("metadata", field.key)
		if value == "" {
			continue
		}
		if *field.to != "" && *field.to != value {
			f.setInvalid("the metadata "+field.key+" of the trigger", "differs from the annotation "+field.annotation)
		}
		*field.to = value
	}
	f.invalid = cmp.Or(f.invalid, trigger.invalid)
}

// isMadeByKEDA reports whether KEDA made a HorizontalPodAutoscaler for a ScaledObject, whose annotations it can have.
func isMadeByKEDA(u *unstructured.Unstructured, f *fields) bool {
	if f.label("app.kubernetes.io/managed-by") == "keda-operator" || f.label("scaledobject.keda.sh/name") != "" {
		return true
	}
	return slices.ContainsFunc(u.GetOwnerReferences(),
		func(o metav1.OwnerReference) bool { return o.Kind == string(snapshot.ScaledObject) })
}

func readVariantAutoscaling(s *Spec, f *fields) {
	s.Model, s.VariantID, s.Cost = f.textAt("spec", "modelID"), f.textAt("spec", "variantID"), f.textAt("spec", "variantCost")
	accelerator := f.textAt("spec", "accelerator")
	s.Accelerator, s.Cards = cmp.Or(accelerator, f.label(LabelAccelerator)), f.numberAt("spec", "acceleratorCount")
	s.Class = ClassRef{Name: f.textAt("spec", "sloClassRef", "name"), Key: f.textAt("spec", "sloClassRef", "key")}
	s.Min, s.Max = f.numberAt("spec", "minReplicas"), f.numberAt("spec", "maxReplicas")
	s.Profile = profileOf(f, "spec", "variantProfile")
	s.Seed = s.VariantID != "" && accelerator != "" && s.Cards.Set && s.Class != (ClassRef{}) && s.Profile.Set
}

func readAnnotations(d *Declaration, f *fields) {
	s := d.Spec
	s.Model, s.Cost = f.annotation(AnnotationModel), f.annotation(AnnotationCost)
	if s.Accelerator = f.label(LabelAccelerator); s.Accelerator == "" {
		s.Accelerator = f.annotation(LabelAccelerator)
	}
	text, _ := f.value("metadata", "annotations", AnnotationSchedule).(string)
	readSchedule(d, f, text, "annotation "+AnnotationSchedule)
	readProfile(s, f)
}

// readSchedule reads the JSON of a schedule from a field.
func readSchedule(d *Declaration, f *fields, text, field string) {
	if text == "" {
		return
	}
	entries, err := schedule.Read(text)
	if err != nil {
		f.setInvalid(field, "cannot be used: "+err.Error())
		return
	}
	d.Schedule, d.Spec.Schedule = entries, strings.Clone(text)
}

// scheduleOf returns the JSON of the schedule of a VariantAutoscaling, which is empty if it has none.
func scheduleOf(f *fields) string {
	value := f.value("spec", "schedule")
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error() // which is no schedule
	}
	return string(text)
}

func readProfile(s *Spec, f *fields) {
	text, _ := f.value("metadata", "annotations", AnnotationProfile).(string)
	if text == "" {
		return
	}
	profile := fields{prefix: "annotation " + AnnotationProfile + ": "}
	switch {
	case len(text) > maxProfile:
		f.setInvalid("annotation "+AnnotationProfile, fmt.Sprintf("has more than %d bytes", maxProfile))
	case json.Unmarshal([]byte(text), &profile.object) != nil:
		f.setInvalid("annotation "+AnnotationProfile, "is not a JSON object")
	default:
		s.Profile = profileOf(&profile)
		f.invalid = cmp.Or(f.invalid, profile.invalid)
	}
}

func profileOf(f *fields, path ...string) Profile {
	if object, ok := f.value(path...).(map[string]any); !ok || object == nil {
		if f.value(path...) != nil {
			f.setInvalid(nameOf(path), "is not an object")
		}
		return Profile{}
	}
	field := func(names ...string) string { return f.textAt(append(path[:len(path):len(path)], names...)...) }
	return Profile{
		Set:   true,
		Alpha: field("perfParms", "decodeParms", "alpha"), Beta: field("perfParms", "decodeParms", "beta"),
		Gamma: field("perfParms", "prefillParms", "gamma"), Delta: field("perfParms", "prefillParms", "delta"),
		MaxBatch: f.numberAt(append(path[:len(path):len(path)], "maxBatchSize")...),
	}
}

func statusOf(f *fields) []byte {
	status, ok := f.value("status").(map[string]any)
	if !ok || len(status) == 0 {
		return nil
	}
	text, err := json.Marshal(status)
	if err != nil || len(text) > maxStatus {
		return nil
	}
	return text
}

// readScales reads which workload an autoscaler scales, and whether it does what this program decides.
func readScales(d *Declaration, u *unstructured.Unstructured, f *fields) {
	switch d.Source {
	case snapshot.VariantAutoscaling:
		return
	case snapshot.HorizontalPodAutoscaler:
		d.Follows, d.OfKEDA = usesMetric(f, ""), isMadeByKEDA(u, f)
		least := f.numberAt("spec", "minReplicas")
		d.IdleAtZero = !least.Set || least.Value > 0 || isDisabled(f)
	case snapshot.ScaledObject:
		d.Follows, d.Pause = usesTrigger(f, ""), readPause(f)
	}
	d.Scales = Owner{
		Namespace: d.Namespace, Name: f.textAt("spec", "scaleTargetRef", "name"),
		Kind: cmp.Or(f.textAt("spec", "scaleTargetRef", "kind"), Deployment), // the default of ScaledObjects
	}
}

// isDisabled reports whether a HorizontalPodAutoscaler says that it does nothing, as its target has no replicas. From Kubernetes 1.37 on,
// one with a minimum of 0 starts only what it has itself scaled to zero, and remembers that in its status.
func isDisabled(f *fields) bool {
	c := f.conditionAt("ScalingActive")
	return c.object["status"] == "False" && c.object["reason"] == "ScalingDisabled"
}

// usesMetric reports whether a HorizontalPodAutoscaler has an external metric of this program, with a type of target. Empty: with any.
func usesMetric(f *fields, targetType string) bool {
	for g := range f.itemsAt("spec", "metrics") {
		if g.value("external", "metric", "name") == metric && (targetType == "" || g.value("external", "target", "type") == targetType) {
			return true
		}
	}
	return false
}

// usesTrigger reports whether a ScaledObject has a trigger that asks for the metric, with a query or at the external scaler, and with a
// type of metric. Empty: with any.
func usesTrigger(f *fields, metricType string) bool {
	for g := range f.itemsAt("spec", "triggers") {
		if metricType != "" && g.object["metricType"] != metricType {
			continue
		}
		query, _ := g.value("metadata", "query").(string)
		address, _ := g.value("metadata", "scalerAddress").(string)
		model, _ := g.value("metadata", metadataModel).(string)
		if strings.Contains(query, metric) || strings.Contains(address, scaler) || model != "" {
			return true
		}
	}
	return false
}
