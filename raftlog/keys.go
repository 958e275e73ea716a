package raftlog

import "encoding/binary"

// A key is the group's number, a kind, and what the kind requires. Numbers are
// big-endian, so that keys sort numerically.
const (
	kindHardState  = 'h'
	kindConfState  = 'c'
	kindApplied    = 'a'
	kindTruncated  = 't'
	kindEntry      = 'e' // + index
	kindSynced     = 'w' // number of synced writes, compared with the watermark
	kindGeneration = 'g' // generation of the installed state
	kindState      = 's' // + generation + the machine's key
	kindLocal      = 'l' // + name
	kindErased     = 'd' // of the default group: up to which number the logs of deleted groups are erased
)

// group is the number of a group and constructs its keys.
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

// prefixEnd returns the smallest key after all keys with the prefix, or nil if
// there is none.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// keyNumber decodes the number that follows the kind; ok is false when the key
// is too short.
func keyNumber(key []byte) (n uint64, ok bool) {
	const at = 4 + 1
	if len(key) < at+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[at:]), true
}
