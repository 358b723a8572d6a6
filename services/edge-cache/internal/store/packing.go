package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Encodings of the content of a value. 1 was S2, which no released version wrote.
const (
	packingNone = 0
	packingZstd = 2

	// packAbove is the size above which compression pays. A Service or an Ingress is smaller, a slice with 100 endpoints has 16 kB.
	packAbove = 2 << 10
	// packWindow is the distance in which the encoder looks for repetitions. A slice of 1 000 endpoints, the largest that the API allows,
	// has 160 kB, and each of its endpoints looks like the one before it.
	packWindow = 64 << 10
	// maxUnpacked limits what a value may become: objects of the API server have 4 MiB at most here.
	maxUnpacked = 8 << 20
)

// encoder and decoder serve all stores. They start no goroutines, and allocate at the first use.
var encoder, decoder = newPacking()

func newPacking() (*zstd.Encoder, *zstd.Decoder) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // the journal has checksums
	if err != nil {
		panic(err) // an option is invalid
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		panic(err)
	}
	return e, d
}

// packObject returns an object with room for its header. Stores without projection show the bytes as they are, and do not compress them.
func (s *Store) packObject(object []byte) []byte {
	if s.params.Projection == nil || len(object) < packAbove {
		value := make([]byte, headerSize, headerSize+len(object))
		value[offsetPacking] = packingNone
		return append(value, object...)
	}
	packed := encoder.EncodeAll(object, make([]byte, headerSize, headerSize+len(object)/2))
	packed[offsetPacking] = packingZstd
	return bytes.Clone(packed) // without spare capacity
}

func unpackObject(value []byte) ([]byte, error) {
	if len(value) < headerSize {
		return nil, errors.New("record is too short")
	}
	switch value[offsetPacking] {
	case packingNone:
		return value[headerSize:], nil
	case packingZstd:
		object, err := decoder.DecodeAll(value[headerSize:], nil)
		if err != nil {
			return nil, fmt.Errorf("unpack object: %w", err)
		}
		return object, nil
	}
	return nil, fmt.Errorf("unpack object: unknown packing %d", value[offsetPacking])
}
