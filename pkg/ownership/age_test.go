package ownership_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/ownership"
)

func TestCompareAge(t *testing.T) {
	object := func(namespace, name string, created int64) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0))}
	}
	objects := []*metav1.ObjectMeta{
		object("b", "oldest", 1),
		object("a", "z", 2),
		object("b", "a", 2),
		object("b", "b", 2),
		object("a", "a", 3),
		object("c-d", "a", 4), // "c-d/a" comes before "c/a"
		object("c", "a", 4),
	}
	shuffled := slices.Clone(objects)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, ownership.CompareAge)
	assert.Equal(t, objects, shuffled)
}
