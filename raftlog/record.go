package raftlog

import (
	"encoding/binary"
	"fmt"

	"github.com/conclave-go/conclave/storage"
	"google.golang.org/protobuf/proto"
)

// recordVersion is the format version with which every record starts.
const recordVersion = 1

// stripVersion checks the version of a record and returns what follows it.
func stripVersion(name string, record []byte) ([]byte, error) {
	if len(record) == 0 {
		return nil, corruptf("%s record is empty", name)
	}
	if record[0] > recordVersion {
		return nil, fmt.Errorf("%w: %s record: version %d, want at most %d: run the version that wrote it",
			storage.ErrNewer, name, record[0], recordVersion)
	}
	if record[0] == 0 {
		return nil, corruptf("%s record: version 0", name)
	}
	return record[1:], nil
}

// corruptf returns an error that wraps storage.ErrCorrupt. Open adds what to do.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storage.ErrCorrupt}, args...)...)
}

func encodeNumbers(numbers ...uint64) []byte {
	record := []byte{recordVersion}
	for _, n := range numbers {
		record = binary.BigEndian.AppendUint64(record, n)
	}
	return record
}

// decodeNumbers decodes exactly len(numbers) numbers.
func decodeNumbers(name string, record []byte, numbers ...*uint64) error {
	b, err := stripVersion(name, record)
	if err != nil {
		return err
	}
	if len(b) != 8*len(numbers) {
		return corruptf("%s record: want %d bytes, got %d", name, 1+8*len(numbers), len(record))
	}
	for i, n := range numbers {
		*n = binary.BigEndian.Uint64(b[8*i:])
	}
	return nil
}

func encodeMessage(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend([]byte{recordVersion}, m)
}

func decodeMessage(name string, record []byte, m proto.Message) error {
	b, err := stripVersion(name, record)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return corruptf("%s record: %w", name, err)
	}
	return nil
}
