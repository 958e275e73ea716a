package hostile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Final is the largest incarnation: the refutation of a death with it would wrap to 0.
const Final = math.MaxUint32

// ForgedDeath is a packet of memberlist that declares a process dead.
func ForgedDeath(member, boot uint64, incarnation uint32) []byte {
	b := []byte{5, 0x83} // a death: a map of 3 pairs
	b = append(str(b, "Incarnation"), 0xce)
	b = binary.BigEndian.AppendUint32(b, incarnation)
	b = str(str(b, "Node"), processName(member, boot))
	return str(str(b, "From"), processName(1, 1))
}

// ForgedStates is a stream of memberlist that announces a million states of nodes and 20
// MiB of user state, and sends none.
func ForgedStates() []byte {
	b := []byte{6, 0x83} // an exchange of states: a map of 3 pairs
	b = append(str(b, "Nodes"), 0xce)
	b = binary.BigEndian.AppendUint32(b, 1<<20)
	b = append(str(b, "UserStateLen"), 0xce)
	b = binary.BigEndian.AppendUint32(b, 20<<20)
	return append(str(b, "Join"), 0xc2)
}

// Pack encodes a map as memberlist does: names and values alternately.
func Pack(pairs ...any) []byte {
	b := []byte{0x80 | byte(len(pairs)/2)}
	for _, v := range pairs {
		switch v := v.(type) {
		case string:
			b = append(append(b, 0xa0|byte(len(v))), v...)
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
		case uint32:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), v)
		case uint64:
			b = binary.BigEndian.AppendUint64(append(b, 0xcf), v)
		case []byte:
			b = append(append(b, 0xc4, byte(len(v))), v...)
		case nil:
			b = append(b, 0xc0)
		case bool:
			b = append(b, 0xc3)
		}
	}
	return b
}

// processName is the name that memberlist has for a process.
func processName(member, boot uint64) string { return fmt.Sprintf("%016x.%d", member, boot) }

func str(b []byte, s string) []byte { return append(append(b, 0xa0|byte(len(s))), s...) }
