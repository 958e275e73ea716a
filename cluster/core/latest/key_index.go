package latest

import (
	"bytes"
	"hash/maphash"

	"github.com/conclave-go/conclave/internal/wire"
)

// keyIndex finds keys in a list of changes, each of which has another key. It is a hash
// table with linear probing. A map would look a key up once to find it and once more to
// insert or delete it, and would keep a second copy of the key's address.
//
// Invariant: between the slot that a key's hash names, its home, and the slot that the key
// has, no slot is empty. At most half of the slots are in use, so a search ends.
type keyIndex struct {
	seed  maphash.Seed
	slots []uint64 // the lower half is a position in the list plus 1, the upper half the key's hash; 0: empty
	used  int
}

// keySlot is where a key is in an index, or where it would be inserted. It is valid until
// the next insertion or removal.
type keySlot struct{ hash, at uint32 }

const firstSlots = 64 // a power of two

// find returns the position in the list of the change with a key; -1 if there is none.
func (x *keyIndex) find(key []byte, in []wire.Change) (slot keySlot, position int) {
	if x.slots == nil {
		x.seed, x.slots = maphash.MakeSeed(), make([]uint64, firstSlots)
	}
	hash, slots := uint32(maphash.Bytes(x.seed, key)), x.slots
	mask := uint32(len(slots) - 1)
	at := hash & mask
	for ; slots[at] != 0; at = (at + 1) & mask {
		if hashOf(slots[at]) != hash {
			continue
		}
		if i := positionOf(slots[at]); bytes.Equal(in[i].Key, key) {
			return keySlot{hash, at}, i
		}
	}
	return keySlot{hash, at}, -1
}

// insert adds a key that find has not found, with its position.
func (x *keyIndex) insert(s keySlot, position int) {
	x.slots[s.at] = uint64(s.hash)<<32 | uint64(position+1)
	if x.used++; 2*x.used > len(x.slots) {
		x.grow()
	}
}

func (x *keyIndex) grow() {
	old := x.slots
	x.slots = make([]uint64, 2*len(old))
	for _, e := range old {
		if e == 0 {
			continue
		}
		at := hashOf(e) & x.mask()
		for x.slots[at] != 0 {
			at = (at + 1) & x.mask()
		}
		x.slots[at] = e
	}
}

// remove removes a key that find has found, and closes the gap: of the keys behind it, up
// to the next empty slot, each one moves into the gap unless that is before its home.
func (x *keyIndex) remove(s keySlot) {
	slots, mask, gap := x.slots, x.mask(), s.at
	for at := (gap + 1) & mask; slots[at] != 0; at = (at + 1) & mask {
		home := hashOf(slots[at]) & mask
		if (at-home)&mask >= (at-gap)&mask {
			slots[gap], gap = slots[at], at
		}
	}
	slots[gap] = 0
	x.used--
}

func (x *keyIndex) mask() uint32 { return uint32(len(x.slots) - 1) }

func hashOf(slot uint64) uint32  { return uint32(slot >> 32) }
func positionOf(slot uint64) int { return int(uint32(slot)) - 1 }
