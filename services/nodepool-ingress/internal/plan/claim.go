package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/ownership"
)

// Contender is a YurtIngress that lists a pool.
type Contender struct {
	ownership.Age

	UID types.UID
}

// Claim describes which YurtIngresses list a pool, and which one has it.
type Claim struct {
	Contenders []Contender
	// Class describes the IngressClass of the pool.
	Class Class
	// Holders are the UIDs of YurtIngresses that have other objects in the pool.
	Holders []types.UID
}

// Class describes an IngressClass.
type Class struct {
	Exists bool
	Owner  types.UID // of the YurtIngress that controls it; empty: none does
}

// ChooseWinner returns the UID of the YurtIngress that has a pool, or that may claim it:
//
//	IngressClass of the pool         the winner is
//	has a YurtIngress as its owner   the owner
//	has another owner, or none       none: the class does not belong to a pool
//	does not exist                   the oldest contender that has other objects in the pool, else the smallest UID that has some,
//	                                 else the oldest contender
//
// Creation of the IngressClass decides between replicas, or releases, of the operator that disagree: only one can create it. All later
// objects of a pool are written only by the owner of its class.
func (c *Claim) ChooseWinner() (uid types.UID, found bool) {
	if c.Class.Exists {
		return c.Class.Owner, c.Class.Owner != ""
	}
	contenders := slices.Clone(c.Contenders)
	slices.SortFunc(contenders, func(a, b Contender) int { return a.Compare(b.Age) })
	if len(c.Holders) > 0 {
		for _, contender := range contenders {
			if slices.Contains(c.Holders, contender.UID) {
				return contender.UID, true
			}
		}
		return slices.Min(c.Holders), true
	}
	if len(contenders) == 0 {
		return "", false
	}
	return contenders[0].UID, true
}

// NameOf returns the name of a contender, or its UID if it no longer contends.
func (c *Claim) NameOf(uid types.UID) string {
	for _, contender := range c.Contenders {
		if contender.UID == uid {
			return contender.Name.Name
		}
	}
	return string(uid)
}
