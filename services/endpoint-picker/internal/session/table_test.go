package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestSessionsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	table := NewTable()
	assert.Empty(t, table.Server("a", noon, time.Minute))
	table.Bind("a", "ns/one", noon)
	table.Bind("b", "ns/two", noon)
	assert.Equal(t, "ns/one", table.Server("a", noon.Add(time.Minute), time.Minute))
	table.Bind("a", "ns/three", noon.Add(time.Second))
	assert.Equal(t, "ns/three", table.Server("a", noon.Add(61*time.Second), time.Minute))
	assert.Equal(t, 2, table.Len())
}

func TestSessionsThatNobodyUsesAreForgotten(t *testing.T) {
	t.Parallel()
	table := NewTable()
	table.Bind("a", "ns/one", noon)
	table.Bind("b", "ns/one", noon.Add(time.Second))
	table.Bind("a", "ns/one", noon.Add(2*time.Second))
	table.Sweep(noon.Add(2 * time.Second))
	assert.Equal(t, 1, table.Len())
	assert.Equal(t, "ns/one", table.Server("a", noon.Add(2*time.Second), time.Minute))
	assert.Empty(t, table.Server("a", noon.Add(63*time.Second), time.Minute))
	assert.Zero(t, table.Len())
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	table := NewTable()
	for i := range most + 10 {
		table.Bind(fmt.Sprint(i), "ns/one", noon)
	}
	assert.Equal(t, most, table.Len())
	assert.Empty(t, table.Server("9", noon, time.Minute), "the oldest went first")
	assert.Equal(t, "ns/one", table.Server("10", noon, time.Minute))
}
