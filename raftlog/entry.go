package raftlog

import (
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
)

// An entry on disk: version, type, term, chain, data. Its checksum covers the
// entry and the checksum of the entry before it, and so the whole log up to it.
const entryHeader = 1 + 1 + 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// position identifies a prefix of the log by its last entry.
type position struct {
	index, term uint64
	chain       uint32 // checksum of the prefix
}

// next returns the position of an entry that follows p.
func (p position) next(e *raftpb.Entry) position {
	var b [4 + 8 + 8 + 1]byte
	binary.BigEndian.PutUint32(b[0:], p.chain)
	binary.BigEndian.PutUint64(b[4:], e.GetIndex())
	binary.BigEndian.PutUint64(b[12:], e.GetTerm())
	b[20] = byte(e.GetType())
	chain := crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, e.GetData())
	return position{index: e.GetIndex(), term: e.GetTerm(), chain: chain}
}

func encodeEntry(e *raftpb.Entry, chain uint32) []byte {
	record := make([]byte, 0, entryHeader+len(e.GetData()))
	record = append(record, recordVersion, byte(e.GetType()))
	record = binary.BigEndian.AppendUint64(record, e.GetTerm())
	record = binary.BigEndian.AppendUint32(record, chain)
	return append(record, e.GetData()...)
}

// decodeEntry returns an entry that does not alias its record.
func decodeEntry(index uint64, record []byte) (e *raftpb.Entry, chain uint32, err error) {
	b, err := stripVersion("entry", record)
	if err != nil {
		return nil, 0, err
	}
	if len(record) < entryHeader {
		return nil, 0, corruptf("record of entry %d: want at least %d bytes, got %d", index, entryHeader, len(record))
	}
	e = &raftpb.Entry{
		Index: new(index),
		Type:  new(raftpb.EntryType(b[0])),
		Term:  new(binary.BigEndian.Uint64(b[1:])),
	}
	if data := b[13:]; len(data) > 0 {
		e.Data = append([]byte(nil), data...)
	}
	return e, binary.BigEndian.Uint32(b[9:]), nil
}
