package settings

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// LowestPriority is that of a class without a valid priority. 1 is the highest.
	LowestPriority = 100
	// maxTarget is a day in milliseconds. Nobody waits longer for a token.
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
	// Note says why this is not the class that the variant asks for. Empty: it is.
	Note string
}

// classDocument is an entry of service-classes-config.
type classDocument struct {
	Name     scalar            `json:"name"`
	Priority scalar            `json:"priority"`
	Data     []json.RawMessage `json:"data"`
}

// classItem has the targets of a model.
type classItem struct {
	Namespace string  `json:"namespace"`
	Model     string  `json:"model"`
	TPOT      float64 `json:"slo-tpot"` // milliseconds
	TTFT      float64 `json:"slo-ttft"`
	PerToken  float64 `json:"slo-ttft-per-token"` // of the prompt, without those in a prefix cache
}

// classes has the classes of all models. Each model is resolved when it is read, so that a lookup takes constant time.
type classes struct {
	byKey   map[string]map[modelName]Class
	byModel map[modelName]listed
}

// listed is the class that lists a model, and the key of another one that disagrees.
type listed struct {
	class    Class
	conflict string
}

func parseClasses(data map[string]string, w *warnings) classes {
	all := classes{byKey: map[string]map[modelName]Class{}, byModel: map[modelName]listed{}}
	for _, key := range sortedKeys(data) {
		document, valid := decodeEntry(key, data[key], classDocument{}, w)
		if !valid {
			continue
		}
		class := Class{Key: key, Name: string(document.Name), Priority: parsePriority(key, string(document.Priority), w)}
		if class.Name == "" {
			class.Name = strings.TrimSuffix(strings.TrimSuffix(key, ".yaml"), ".yml")
		}
		own := map[modelName]Class{}
		for i, text := range document.Data {
			name, targets, valid := parseItem(key, i, text, w)
			if !valid {
				continue
			}
			if _, found := own[name]; found {
				w.add(ReasonInvalid, key, "ignored data[%d]: %s is listed before; remove one of them", i, name)
				continue
			}
			class.Targets = targets
			own[name] = class
			all.list(name, class, w)
		}
		all.byKey[key] = own
	}
	return all
}

// parsePriority returns the lowest priority for what is not a priority.
func parsePriority(key, text string, w *warnings) int {
	if text == "" {
		return LowestPriority
	}
	priority, err := strconv.Atoi(text)
	if err != nil || priority < 1 || priority > LowestPriority {
		w.add(ReasonInvalid, key, "the priority %q is not a whole number from 1 to %d: %d is in force; correct it", quote(text), LowestPriority, LowestPriority)
		return LowestPriority
	}
	return priority
}

func parseItem(key string, index int, text []byte, w *warnings) (name modelName, targets snapshot.Targets, valid bool) {
	item, ignored, err := decodeJSON[classItem](text)
	switch {
	case err != nil:
		w.add(ReasonInvalid, key, "ignored data[%d]: %s; correct it", index, quote(err.Error()))
	case item.Model == "":
		w.add(ReasonInvalid, key, "ignored data[%d]: it has no model; set one, or %s for all models", index, defaultModel)
	case !isTarget(item.TPOT) || !isTarget(item.TTFT) || !isTarget(item.PerToken) || item.TPOT+item.TTFT+item.PerToken == 0:
		w.add(ReasonInvalid, key, "ignored data[%d]: set slo-ttft, slo-ttft-per-token or slo-tpot to milliseconds, more than 0 and at most %d", index, maxTarget)
	default:
		if ignored != nil {
			w.add(ReasonUnknown, key, "ignored a part of data[%d]: %s; remove it, or correct its name", index, quote(ignored.Error()))
		}
		return modelName{item.Namespace, item.Model}, snapshot.Targets{TTFT: item.TTFT, TTFTPerToken: item.PerToken, ITL: item.TPOT}, true
	}
	return modelName{}, snapshot.Targets{}, false
}

func isTarget(milliseconds float64) bool {
	return !math.IsNaN(milliseconds) && milliseconds >= 0 && milliseconds <= maxTarget
}

// list adds a class that lists a model. Of classes that list default/default, the one with the least key counts: they do not name a model.
func (c *classes) list(name modelName, class Class, w *warnings) {
	before, found := c.byModel[name]
	switch {
	case !found:
		c.byModel[name] = listed{class: class}
	case before.class.Priority == class.Priority && before.class.Targets == class.Targets:
	case name.model == defaultModel:
		w.add(ReasonInvalid, class.Key, "%s is in %q, too, with other targets or another priority: %q is in force where a variant does not ask for a class; remove one of them",
			name, before.class.Key, before.class.Key)
	case before.conflict == "":
		before.conflict = class.Key
		c.byModel[name] = before
		w.add(ReasonInvalid, class.Key, "%s is in %q, too, with other targets or another priority: variants that do not ask for a class keep their replicas; remove one of them",
			name, before.class.Key)
	}
}

// find looks for a model in the class that the variant asks for, then in all classes.
func (c *classes) find(namespace, model, key string) (Class, *snapshot.Problem) {
	names := []modelName{{namespace, model}, {"", model}, {namespace, defaultModel}, {"", defaultModel}}
	own, exists := c.byKey[key]
	for _, name := range names {
		if class, found := own[name]; found {
			return class, nil
		}
	}
	for _, name := range names {
		found, ok := c.byModel[name]
		if !ok {
			continue
		}
		if found.conflict != "" {
			return Class{}, &snapshot.Problem{Reason: ReasonInvalid, Message: fmt.Sprintf(
				"service classes %q and %q disagree about %s: remove it from one of them, or set sloClassRef.key of the variants", found.class.Key, found.conflict, name)}
		}
		class := found.class
		switch {
		case key != "" && !exists:
			class.Note = fmt.Sprintf("service class %q, which the variant asks for, does not exist: %q is in force", quote(key), class.Key)
		case key != "":
			class.Note = fmt.Sprintf("service class %q, which the variant asks for, does not list the model: %q is in force", quote(key), class.Key)
		}
		return class, nil
	}
	return Class{}, &snapshot.Problem{Reason: ReasonNoClass, Message: fmt.Sprintf(
		"no service class lists %s: add it to a class, or add %s", modelName{namespace, model}, defaultModel)}
}
