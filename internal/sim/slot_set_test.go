package sim

import "math/bits"

// slotSet is a set of numbers below 256.
type slotSet [4]uint64

func (s slotSet) has(n int32) bool { return s[n/64]&(1<<(n%64)) != 0 }

func (s slotSet) with(n int32) slotSet {
	s[n/64] |= 1 << (n % 64)
	return s
}

func (s slotSet) without(o slotSet) slotSet {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

func (s slotSet) within(o slotSet) bool { return s.without(o) == slotSet{} }

// firstFree returns the smallest number that is not in the set; -1: there is none.
func (s slotSet) firstFree() int32 {
	for i, w := range s {
		if free := bits.TrailingZeros64(^w); free < 64 {
			return int32(64*i + free)
		}
	}
	return -1
}
