package protoscan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A found is one field of a message.
type found struct {
	tag    Tag
	number uint64
	text   string
	at     int
}

// scan returns the fields of a message. Values of other wire types are skipped.
func scan(message []byte) ([]found, error) {
	var all []found
	f := Scan(message)
	for f.Next() {
		one := found{tag: f.Tag}
		switch f.Tag & 7 {
		case Varint:
			one.number = f.Value
		case Bytes:
			one.text, one.at = string(f.Bytes), f.Offset
		}
		all = append(all, one)
	}
	return all, f.Err()
}

func TestFields(t *testing.T) {
	t.Parallel()
	group := protowire.AppendTag(protowire.AppendTag(nil, 4, protowire.StartGroupType), 4, protowire.EndGroupType)
	message := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 300)
	message = protowire.AppendString(protowire.AppendTag(message, 2, protowire.BytesType), "text")
	message = protowire.AppendFixed64(protowire.AppendTag(message, 3, protowire.Fixed64Type), 7)
	message = append(message, group...)
	message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), nil)
	got, err := scan(message)
	require.NoError(t, err)
	assert.Equal(t, []found{
		{tag: 1<<3 | Varint, number: 300},
		{tag: 2<<3 | Bytes, text: "text", at: 5},
		{tag: 3<<3 | Fixed64},
		{tag: 4<<3 | 3},
		{tag: 2<<3 | Bytes, at: len(message)},
	}, got)
}

func TestFields_EndAtAnInvalidField(t *testing.T) {
	t.Parallel()
	valid := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5)
	tests := []struct {
		name string
		give []byte
		want int // fields before the invalid one
	}{
		{name: "empty"},
		{name: "a tag without an end", give: []byte("\xff\xff")},
		{name: "a number without an end", give: []byte("\x08\xff")},
		{name: "bytes that are cut off", give: append(valid, "\x12\x05ab"...), want: 1},
		{name: "field number 0", give: []byte("\x00\x01")},
		{name: "the end of a group that never began", give: []byte("\x24")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := scan(tt.give)
			assert.Len(t, got, tt.want)
			if len(tt.give) > 0 {
				require.ErrorIs(t, err, ErrMalformed)
			}
		})
	}
}

// FuzzFields checks that the fields are those that the library finds, and that every offset is right.
func FuzzFields(f *testing.F) {
	f.Add([]byte("\x08\x05\x12\x04text\x19\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x0b\x0c\x25\x01\x02\x03\x04"))
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := scan(message)
		for _, one := range got {
			require.Equal(t, one.text, string(message[one.at:one.at+len(one.text)]))
		}
		var copied []byte
		for s := Scan(message); s.Next(); {
			copied = append(copied, s.Encoding()...)
		}
		require.Equal(t, string(message[:len(copied)]), string(copied), "the encodings are the message")
		require.True(t, err != nil || len(copied) == len(message))
		var unknown emptypb.Empty // all fields of a message without fields are kept
		if proto.Unmarshal(message, &unknown) != nil {
			return // it also checks what is in groups
		}
		require.NoError(t, err)
		again, err := scan(unknown.ProtoReflect().GetUnknown())
		require.NoError(t, err)
		require.Len(t, got, len(again))
	})
}
