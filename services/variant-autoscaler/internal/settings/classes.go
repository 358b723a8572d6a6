package settings

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// LowestPriority is that of a class without a valid priority. 1 is the highest.
	LowestPriority = 100
	// maxTarget is a day in milliseconds. No client waits longer for a token.
	maxTarget = 24 * 60 * 60 * 1000
	// defaultModel stands for all models that a class does not list.
	defaultModel = "default/default"
)

// Class is a service class, with its targets for one model.
type Class struct {
	Key      string // of the ConfigMap
	Name     string
	Priority int // 1 to 100; 1 is the most important
	Targets  snapshot.Targets
	// Ratio bounds the prefill replicas for each decode replica.
	Ratio snapshot.Ratio
	// Note says why this is not the class that the variant asks for, or not that class alone. Empty: it is.
	Note string
}

// classDocument is an entry of service-classes-config.
type classDocument struct {
	Name     strictyaml.Scalar `yaml:"name"`
	Priority strictyaml.Scalar `yaml:"priority"`
	Data     []classItem       `yaml:"data"`
}

// classItem has the targets of a model.
type classItem struct {
	Namespace string  `yaml:"namespace"`
	Model     string  `yaml:"model"`
	TPOT      float64 `yaml:"slo-tpot"` // milliseconds
	ITL       float64 `yaml:"slo-itl"`  // as examples of old releases call it
	TTFT      float64 `yaml:"slo-ttft"`
	PerToken  float64 `yaml:"slo-ttft-per-token"` // of the prompt, without those in a prefix cache
	// Prefill replicas for each decode replica, of a model whose servers have these roles.
	MinRatio float64 `yaml:"min-prefill-per-decode"`
	MaxRatio float64 `yaml:"max-prefill-per-decode"`
}

// classes has the classes of all models. Each model is resolved when it is read, so that a lookup takes constant time.
type classes struct {
	byKey   map[string]map[modelName]listed
	byModel map[modelName]listed
}

// listed is the class that lists a model.
type listed struct {
	class    Class
	source   string // ConfigMap
	conflict string // with other classes, whose targets are those of class, too
}

// parseClasses decodes the classes of all ConfigMaps. If there are two, messages name a class with its ConfigMap.
func parseClasses(sources []Source, w *warnings) classes {
	all := classes{byKey: map[string]map[modelName]listed{}, byModel: map[modelName]listed{}}
	for _, source := range sources {
		for _, key := range sortedKeys(source.Data) {
			name := key
			if len(sources) > 1 {
				name = source.Name + "/" + key
			}
			all.addClass(key, name, source, w)
		}
	}
	return all
}

// addClass adds the class of a key.
func (c *classes) addClass(key, name string, source Source, w *warnings) {
	document, problems := decodeDocument(name, source.Data[key], classDocument{}, w)
	ofItems, ofEntry := splitProblems(problems)
	if w.addProblems(name, "ignored", ofEntry); len(ofEntry) > 0 {
		return
	}
	class := Class{
		Key: name, Name: cmp.Or(string(document.Name), strings.TrimSuffix(strings.TrimSuffix(key, ".yaml"), ".yml")),
		Priority: parsePriority(name, string(document.Priority), w),
	}
	own := map[modelName]bool{}
	if c.byKey[key] == nil {
		c.byKey[key] = map[modelName]listed{}
	}
	for i := range document.Data {
		item := &document.Data[i]
		if w.addProblems(name, fmt.Sprintf("ignored data[%d]", i), ofItems[i]); len(ofItems[i]) > 0 || !item.validateItem(name, i, w) {
			continue
		}
		model := modelName{item.Namespace, item.Model}
		if own[model] {
			w.addWarning(ReasonInvalid, name, "ignored data[%d]: %s is listed before; remove one of them", i, model)
			continue
		}
		own[model] = true
		class.Targets = snapshot.Targets{TTFT: item.TTFT, TTFTPerToken: item.PerToken, ITL: item.TPOT}
		class.Ratio = item.prefillRatio(name, i, w)
		addListed(c.byKey[key], model, listed{class: class, source: source.Name}, nil) // the warning is that of all classes
		addListed(c.byModel, model, listed{class: class, source: source.Name}, w)
	}
}

// parsePriority returns the lowest priority for what is not a priority.
func parsePriority(key, text string, w *warnings) int {
	if text == "" {
		return LowestPriority
	}
	priority, err := strconv.Atoi(text)
	if err != nil || priority < 1 || priority > LowestPriority {
		w.addWarning(ReasonInvalid, key, "the priority %q is not a whole number from 1 to %d: %d is in force; correct it", quoteText(text),
			LowestPriority, LowestPriority)
		return LowestPriority
	}
	return priority
}

// maxRatio is more than any model needs: prompts of a million tokens take as long as some ten thousand decode steps of a full batch.
const maxRatio = 1000

// prefillRatio returns the bounds of the ratio, none where they cannot be kept.
func (c *classItem) prefillRatio(key string, index int, w *warnings) snapshot.Ratio {
	usable := func(bound float64) bool { return bound == 0 || bound >= 1/float64(maxRatio) && bound <= maxRatio }
	if !usable(c.MinRatio) || !usable(c.MaxRatio) || c.MaxRatio > 0 && c.MinRatio > c.MaxRatio {
		w.addWarning(ReasonInvalid, key, "ignored min-prefill-per-decode and max-prefill-per-decode of data[%d]: set the first to no more than the second, both from %g to %d, or 0 for no bound",
			index, 1/float64(maxRatio), maxRatio)
		return snapshot.Ratio{}
	}
	return snapshot.Ratio{Min: c.MinRatio, Max: c.MaxRatio}
}

// validateItem reports whether an item is valid.
func (c *classItem) validateItem(key string, index int, w *warnings) bool {
	if c.TPOT != 0 && c.ITL != 0 && c.TPOT != c.ITL {
		w.addWarning(ReasonInvalid, key, "data[%d] has slo-tpot and slo-itl, which mean the same: slo-tpot is in force; remove one of them",
			index)
	}
	c.TPOT = cmp.Or(c.TPOT, c.ITL)
	switch {
	case c.Model == "":
		w.addWarning(ReasonInvalid, key, "ignored data[%d]: it has no model; set one, or %s for all models", index, defaultModel)
	case !isTarget(c.TPOT) || !isTarget(c.TTFT) || !isTarget(c.PerToken) || c.TPOT+c.TTFT+c.PerToken == 0:
		w.addWarning(ReasonInvalid, key, "ignored data[%d]: set slo-ttft, slo-ttft-per-token or slo-tpot to milliseconds, more than 0 and at most %d", index, maxTarget)
	default:
		return true
	}
	return false
}

// splitProblems separates the problems of items, by their index, from those of the rest of the entry.
func splitProblems(problems []strictyaml.Problem) (ofItems map[int][]strictyaml.Problem, ofEntry []strictyaml.Problem) {
	ofItems = map[int][]strictyaml.Problem{}
	for _, problem := range problems {
		var index int
		if _, err := fmt.Sscanf(problem.Path, "data[%d]", &index); err == nil {
			ofItems[index] = append(ofItems[index], problem)
		} else {
			ofEntry = append(ofEntry, problem)
		}
	}
	return ofItems, ofEntry
}

func isTarget(milliseconds float64) bool {
	return !math.IsNaN(milliseconds) && milliseconds >= 0 && milliseconds <= maxTarget
}

// addListed adds a class that lists a model. Of classes of a ConfigMap that list default/default, the one with the least key counts: they
// do not name a model. Of others that disagree, the stricter targets of both count, so that there are no fewer replicas than either asks
// for. w is nil for no warning.
func addListed(to map[modelName]listed, name modelName, added listed, w *warnings) {
	before, found := to[name]
	if !found {
		to[name] = added
		return
	}
	if before.class.Priority == added.class.Priority && before.class.Targets == added.class.Targets &&
		before.class.Ratio == added.class.Ratio {
		return
	}
	first, consequence := before.conflict == "", fmt.Sprintf("%q is in force where a variant does not ask for a class", before.class.Key)
	if name.model == defaultModel && before.source == added.source {
		before.class.Note = fmt.Sprintf("service class %q lists %s, too, with other targets or another priority: %q is in force",
			quoteText(added.class.Key), name, quoteText(before.class.Key))
	} else {
		consequence = "the stricter targets and the better priority are in force"
		before.conflict = cmp.Or(before.conflict, fmt.Sprintf("service classes %q and %q disagree about %s: the stricter targets and the better priority are in force; remove it from one of them, or set sloClassRef.key of the variants",
			before.class.Key, added.class.Key, name))
		before.class.Targets, before.class.Priority = stricterTargets(before.class.Targets, added.class.Targets),
			min(before.class.Priority, added.class.Priority)
		before.class.Ratio = narrowerRatio(before.class.Ratio, added.class.Ratio)
	}
	to[name] = before
	if w != nil && first {
		w.addWarning(ReasonInvalid, added.class.Key, "%s is in %q, too, with other targets or another priority: %s; remove one of them", name,
			before.class.Key, consequence)
	}
}

// stricterTargets returns targets that are met only if both of two are.
func stricterTargets(a, b snapshot.Targets) snapshot.Targets {
	s := snapshot.Targets{TTFT: min(a.TTFT, b.TTFT), TTFTPerToken: min(a.TTFTPerToken, b.TTFTPerToken), ITL: min(a.ITL, b.ITL)}
	if s.TTFT+s.TTFTPerToken == 0 { // one of them has none, or they have no part in common
		s.TTFT, s.TTFTPerToken = a.TTFT, a.TTFTPerToken
		if a.TTFT+a.TTFTPerToken == 0 {
			s.TTFT, s.TTFTPerToken = b.TTFT, b.TTFTPerToken
		}
	}
	if s.ITL == 0 {
		s.ITL = max(a.ITL, b.ITL)
	}
	return s
}

// narrowerRatio returns bounds that keep both of two, or the maximum of both where no ratio does.
func narrowerRatio(a, b snapshot.Ratio) snapshot.Ratio {
	n := snapshot.Ratio{Min: max(a.Min, b.Min), Max: max(a.Max, b.Max)}
	if a.Max > 0 && b.Max > 0 {
		n.Max = min(a.Max, b.Max)
	}
	if n.Max > 0 {
		n.Min = min(n.Min, n.Max)
	}
	return n
}

// findClass looks for a model in the class that the variant asks for, then in all classes.
func (c *classes) findClass(namespace, model, key string) (Class, *snapshot.Problem) {
	names := []modelName{{namespace, model}, {"", model}, {namespace, defaultModel}, {"", defaultModel}}
	own, exists := c.byKey[key]
	for _, name := range names {
		if found, ok := own[name]; ok {
			found.class.Note = ""
			return found.withNote(), nil
		}
	}
	lacks := "does not list the model"
	if !exists {
		lacks = "does not exist"
	}
	for _, name := range names {
		if found, ok := c.byModel[name]; ok {
			if key != "" {
				found.class.Note = fmt.Sprintf("service class %q, which the variant asks for, %s: %q is in force", quoteText(key), lacks,
					found.class.Key)
			}
			return found.withNote(), nil
		}
	}
	return Class{}, snapshot.NewProblem(ReasonNoClass, "no service class lists %s: add it to a class, or add %s",
		modelName{namespace, model}, defaultModel)
}

// withNote returns the class, with what its variants should know.
func (l *listed) withNote() Class {
	l.class.Note = cmp.Or(l.conflict, l.class.Note)
	return l.class
}
