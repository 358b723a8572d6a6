package wake

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSignalsBeforeReceiverAreOne(t *testing.T) {
	t.Parallel()
	s := NewSignal()
	assert.Empty(t, s)
	s.Send()
	s.Send() // does not block
	assert.Len(t, s, 1)
	<-s
	s.Send()
	assert.Len(t, s, 1, "a signal after the receiver has taken the last one")
}
