package core

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

var digestTable = crc32.MakeTable(crc32.Castagnoli)

// digests is the rolling digest of all changes of the machine's state, in order: two
// members that differ once differ at every later index.
type digests struct {
	index, last uint64
	kept        digestRing
}

func (d *digests) restore(index, digest uint64) {
	*d = digests{}
	d.put(index, digest)
}

func (d *digests) put(index, digest uint64) {
	d.index, d.last = index, digest
	d.kept.put(index, digest)
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

// FirstDigest returns the digest of the state with which a new group begins. That of an empty one is
// 0, as for builds that know no other.
func FirstDigest(state []wire.Change) uint64 {
	var d digests
	if len(state) > 0 {
		d.add(raftlog.BootstrapIndex, state)
	}
	return d.last
}

// Digests are exchanged at each multiple of digestStride, and at an index that a voter
// chooses when it has sent none for a while.
const (
	digestStride = 64
	digestsKept  = 64
)

// digestRing keeps digests by index: those of the last multiples of digestStride, and of
// the last other indexes. A newer one replaces an older one.
type digestRing struct {
	strides, others [digestsKept]indexedDigest
}

type indexedDigest struct {
	index, digest uint64
	sent          bool // by this member to the others
}

func (r *digestRing) slot(index uint64) *indexedDigest {
	if index%digestStride == 0 {
		return &r.strides[index/digestStride%digestsKept]
	}
	return &r.others[index%digestsKept]
}

func (r *digestRing) put(index, digest uint64) {
	*r.slot(index) = indexedDigest{index: index, digest: digest}
}

// at returns the digest at index, or nil.
func (r *digestRing) at(index uint64) *indexedDigest {
	if s := r.slot(index); s.index == index && index != 0 {
		return s
	}
	return nil
}
