package plan

import (
	"slices"
	"strings"
)

// Claim is what two services cannot both have.
type Claim struct {
	Host, Path string
	Model      Model
}

// String writes a claim as ParseClaim reads it: "host/path/", and for a model "host/ header=name".
func (c Claim) String() string {
	text := c.Host + c.Path
	if c.Model != (Model{}) {
		text += " " + c.Model.Header + "=" + c.Model.Name
	}
	return text
}

// ParseClaim reads what String has written. It reports false of any other text.
func ParseClaim(text string) (Claim, bool) {
	where, model, told := strings.Cut(text, " ")
	i := strings.Index(where, root)
	if i < 1 || !strings.HasSuffix(where, root) {
		return Claim{}, false
	}
	c := Claim{Host: where[:i], Path: where[i:]}
	c.Model.Header, c.Model.Name, _ = strings.Cut(model, "=")
	return c, !told || c.Model.Header != "" && c.Model.Name != ""
}

// stand completes what the service stands for: what is kept keeps its claims, unless an older service has them.
func (b *builder) stand() {
	for _, slot := range b.plan.Keep {
		for _, c := range b.Serving[slot] {
			if slices.Contains(b.plan.Claims, c) {
				continue
			}
			b.plan.Claims = append(b.plan.Claims, c)
			if winner, taken := b.Taken[c]; taken {
				b.say("", ReasonHostConflict, "%s is that of %s, which is older", c, winner)
			}
		}
	}
}
