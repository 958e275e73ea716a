package core

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/conclave-go/conclave/internal/wire"
)

// The data of an entry is a header for the cluster, followed by a batch for the machine.
//
//	1 byte   version
//	8 bytes  the index up to which the proposer had applied
//	8 bytes  its rolling digest of the state at that index
const (
	entryVersion = 1
	entryHeader  = 1 + 8 + 8
)

var errEntry = errors.New("entry of an unknown version: update this member")

type entry struct {
	digestIndex uint64
	digest      uint64
	batch       []byte
}

func appendEntryHeader(b []byte, digestIndex, digest uint64) []byte {
	b = append(b, entryVersion)
	b = binary.BigEndian.AppendUint64(b, digestIndex)
	return binary.BigEndian.AppendUint64(b, digest)
}

func parseEntry(data []byte) (entry, error) {
	if len(data) <= entryHeader || data[0] != entryVersion {
		return entry{}, errEntry
	}
	return entry{
		digestIndex: binary.BigEndian.Uint64(data[1:]),
		digest:      binary.BigEndian.Uint64(data[9:]),
		batch:       data[entryHeader:],
	}, nil
}

var digestTable = crc32.MakeTable(crc32.Castagnoli)

// digests is the rolling digest of all changes of the machine's state, in order. The
// header of each entry carries the proposer's digest, which every member compares with
// its own. The last few are kept, because the proposer's index may be some entries back.
type digests struct {
	last   uint64
	index  uint64
	recent [64]struct{ index, digest uint64 }
}

func (d *digests) restore(index, digest uint64) {
	*d = digests{}
	d.put(index, digest)
}

func (d *digests) put(index, digest uint64) {
	d.index, d.last = index, digest
	slot := &d.recent[index%uint64(len(d.recent))]
	slot.index, slot.digest = index, digest
}

// add updates the digest with the changes of the entry at index: a 32-bit checksum of
// the changes is mixed into the 64-bit digest.
func (d *digests) add(index uint64, changes []wire.Change) {
	var size [8]byte
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(size[:0], index), digestTable)
	for _, c := range changes {
		binary.BigEndian.PutUint32(size[:4], uint32(len(c.Key)))
		binary.BigEndian.PutUint32(size[4:], uint32(len(c.Value)))
		sum = crc32.Update(sum, digestTable, size[:])
		sum = crc32.Update(sum, digestTable, c.Key)
		sum = crc32.Update(sum, digestTable, c.Value)
	}
	const prime = 0x9E3779B97F4A7C15 // 2^64 / golden ratio: spreads every input bit
	d.put(index, (d.last^uint64(sum))*prime+1)
}

// agrees reports whether digest equals this member's at index, or that is not kept any
// more.
func (d *digests) agrees(index, digest uint64) bool {
	slot := d.recent[index%uint64(len(d.recent))]
	return slot.index != index || slot.digest == digest
}
