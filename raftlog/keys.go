package raftlog

import "encoding/binary"

// The key space of one group: the group's number, a kind, and what the kind
// needs. Numbers are big endian, so that keys sort as they count.
const (
	kindHardState  = 'h'
	kindConfState  = 'c'
	kindApplied    = 'a'
	kindTruncated  = 't'
	kindEntry      = 'e' // + index
	kindSynced     = 'w' // number of the last synced write, for the watermark
	kindGeneration = 'g' // which generation of the state is the valid one
	kindState      = 's' // + generation + the machine's key
	kindLocal      = 'l' // + name
)

// group is the number of a group; it makes the keys.
type group uint32

func (g group) key(kind byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(g)), kind)
}

func (g group) numbered(kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64(g.key(kind), number)
}

func (g group) entry(index uint64) []byte { return g.numbered(kindEntry, index) }

func (g group) state(generation uint64, key []byte) []byte {
	return append(g.numbered(kindState, generation), key...)
}

func (g group) local(name string) []byte { return append(g.key(kindLocal), name...) }

// after returns the first key behind all those with the prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil // nothing is behind
}

// number reads the number that follows the kind.
func number(key []byte) (n uint64, rest []byte, ok bool) {
	const at = 4 + 1
	if len(key) < at+8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(key[at:]), key[at+8:], true
}
