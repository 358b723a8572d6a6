package snapshot

// NodeSet is the nodes that pods of some variants can use.
type NodeSet struct {
	Name     string `json:"name"` // for people
	Resource string `json:"resource"`
	Nodes    int    `json:"nodes"`
	// Elastic sets grow: a node autoscaler adds nodes.
	Elastic bool        `json:"elastic,omitempty"`
	Free    []FreeNodes `json:"free,omitempty"`
	// Within are the positions of the other sets that have all nodes of this one, and Overlaps those of the sets that have some of them.
	Within   []int `json:"within,omitempty"`
	Overlaps []int `json:"overlaps,omitempty"`
}

// FreeNodes is a number of nodes with the same number of free cards.
type FreeNodes struct {
	Cards int64 `json:"cards"`
	Nodes int64 `json:"nodes"`
}

// CountPlaces returns how many pods with a number of cards fit on the nodes of the set.
func (s *NodeSet) CountPlaces(cards int64) int64 {
	var places int64
	for _, f := range s.Free {
		places += f.Nodes * (f.Cards / cards)
	}
	return places
}

// Pods are the pods of a variant that request cards of nodes.
type Pods struct {
	Set    int   `json:"set"`   // position of the node set
	Cards  int64 `json:"cards"` // of the largest pod
	Count  int64 `json:"count"` // of a replica
	Placed int64 `json:"placed"`
	// Quotas are the positions of the quotas of the flavors that the pods can get: all of one ClusterQueue. Empty: no quota limits them.
	Quotas []int `json:"quotas,omitempty"`
	// Admitted are the pods that Kueue does not keep from starting.
	Admitted int64 `json:"admitted,omitempty"`
}

// Quota is the quota of a ClusterQueue or a Cohort of Kueue for the cards of a flavor.
type Quota struct {
	Name   string `json:"name"`   // for people
	Parent int    `json:"parent"` // position of the quota of its Cohort, which is before it; -1: none
	// Nominal is its own quota: that of a Cohort includes what members lend that are not in the snapshot.
	Nominal int64 `json:"nominal"`
	// Borrowing and Lending are the most that may come from, and go to, others of the Cohort. Nil: no limit.
	Borrowing *int64 `json:"borrowing,omitempty"`
	Lending   *int64 `json:"lending,omitempty"`
	// Used is what workloads use of it: of a Cohort, those of members that are not in the snapshot.
	Used int64 `json:"used"`
}
