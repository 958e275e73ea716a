package core

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/conclave-go/conclave/internal/wire"
)

// The data of an entry is a header that the cluster reads, and behind it a
// batch that only the machine understands.
//
//	1 byte   version
//	8 bytes  the index up to which the proposer had applied
//	8 bytes  its rolling digest of the state at that index
const (
	entryVersion = 1
	entryHeader  = 1 + 8 + 8
)

var errEntry = errors.New("entry of an unknown version; update this member")

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

// digests is the rolling digest of the machine's state: of every change that
// was ever made to it, in order. Members compare theirs through the entries'
// headers. The last few are kept, because a proposal names an index that may
// lie some entries back.
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

// add rolls the changes that the entry at index made into the digest: 32 bits
// of checksum over the changes, mixed into 64 bits of history.
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

// agrees reports whether the digest claimed for an index is ours as well. An
// index that is no longer remembered cannot disagree.
func (d *digests) agrees(index, digest uint64) bool {
	slot := d.recent[index%uint64(len(d.recent))]
	return slot.index != index || slot.digest == digest
}
