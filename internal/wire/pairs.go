package wire

import (
	"errors"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Pairs are the pairs of a chunk as they are encoded, known to be well-formed. A pair takes
// two bytes at least and, decoded by package proto, more than a hundred: so they are decoded
// one by one, and what a chunk takes is its own length.
type Pairs []byte

// Chunk is a SnapshotChunk or a BackupChunk.
type Chunk struct {
	Pairs Pairs
	Count uint64 // of the pairs
	Last  bool   // of a snapshot
	Total uint64 // of a snapshot
}

var errMalformed = errors.New("a malformed chunk of pairs")

// DecodeChunk checks a chunk and decodes all of it but its pairs, which refer to data. It
// allocates nothing.
func DecodeChunk(data []byte) (Chunk, error) {
	c := Chunk{Pairs: data}
	for rest := data; len(rest) > 0; {
		number, kind, value, n := consume(rest)
		if n < 0 {
			return Chunk{}, errMalformed
		}
		rest = rest[n:]
		switch {
		case number == 1 && kind == protowire.BytesType:
			if _, _, ok := pair(value); !ok {
				return Chunk{}, errMalformed
			}
			c.Count++
		case number == 2 && kind == protowire.VarintType:
			last, _ := protowire.ConsumeVarint(value)
			c.Last = last != 0
		case number == 3 && kind == protowire.VarintType:
			c.Total, _ = protowire.ConsumeVarint(value)
		}
	}
	return c, nil
}

// All iterates over the pairs. The slices refer to the chunk.
func (p Pairs) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for rest := []byte(p); len(rest) > 0; {
			number, kind, value, n := consume(rest)
			if n < 0 {
				return // DecodeChunk has excluded it
			}
			rest = rest[n:]
			if number != 1 || kind != protowire.BytesType {
				continue
			}
			if key, value, _ := pair(value); !yield(key, value) {
				return
			}
		}
	}
}

// pair decodes a Pair.
func pair(data []byte) (key, value []byte, ok bool) {
	for len(data) > 0 {
		number, kind, field, n := consume(data)
		if n < 0 {
			return nil, nil, false
		}
		data = data[n:]
		switch {
		case kind != protowire.BytesType:
		case number == 1:
			key = field
		case number == 2:
			value = field
		}
	}
	return key, value, true
}

// consume reads a field: the content of one of bytes, or else its value as it is encoded. n is
// its length, negative if it is malformed.
func consume(data []byte) (number protowire.Number, kind protowire.Type, value []byte, n int) {
	number, kind, n = protowire.ConsumeTag(data)
	if n < 0 {
		return 0, 0, nil, n
	}
	if number > protowire.MaxValidNumber { // protowire accepts it, package proto does not
		return 0, 0, nil, -1
	}
	length := protowire.ConsumeFieldValue(number, kind, data[n:])
	if length < 0 {
		return 0, 0, nil, length
	}
	value = data[n : n+length]
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value)
	}
	return number, kind, value, n + length
}

// Occurrences counts a field in an encoded message: how many elements decoding a repeated
// message, text or bytes allocates. What is malformed counts up to there.
func Occurrences(data []byte, field int32) (count int) {
	for len(data) > 0 {
		number, _, _, n := consume(data)
		if n < 0 {
			return count
		}
		data = data[n:]
		if int32(number) == field {
			count++
		}
	}
	return count
}

// OccurrencesWithin counts a field in the messages that a field of an encoded message has: decoding makes one
// message of them, with the elements of all.
func OccurrencesWithin(data []byte, field, inner int32) (count int) {
	for len(data) > 0 {
		number, kind, value, n := consume(data)
		if n < 0 {
			return count
		}
		data = data[n:]
		if int32(number) == field && kind == protowire.BytesType {
			count += Occurrences(value, inner)
		}
	}
	return count
}
