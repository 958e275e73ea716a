package raftlog

import (
	"encoding/binary"
	"fmt"

	"github.com/conclave-go/conclave/storage"
	"google.golang.org/protobuf/proto"
)

// Every record starts with the version of its format.
const recordVersion = 1

// mark is an entry without its data: what the next one is appended to.
type mark struct {
	index, term uint64
	chain       uint32 // checksum of the log up to and with this entry
}

// Applied says which entry the state is the state of, and what digest of it was
// handed in with it.
type Applied struct {
	Index, Term, Digest uint64
}

// body checks the version of a record and strips it.
func body(name string, record []byte) ([]byte, error) {
	if len(record) == 0 {
		return nil, damaged("the %s record is empty", name)
	}
	if record[0] > recordVersion {
		return nil, fmt.Errorf("%w: the %s record has version %d, this one knows up to %d", storage.ErrNewer, name, record[0], recordVersion)
	}
	if record[0] == 0 {
		return nil, damaged("the %s record has version 0", name)
	}
	return record[1:], nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storage.ErrCorrupt}, args...)...)
}

func encodeNumbers(numbers ...uint64) []byte {
	record := []byte{recordVersion}
	for _, n := range numbers {
		record = binary.BigEndian.AppendUint64(record, n)
	}
	return record
}

// decodeNumbers reads as many numbers as there are places.
func decodeNumbers(name string, record []byte, places ...*uint64) error {
	b, err := body(name, record)
	if err != nil {
		return err
	}
	if len(b) != 8*len(places) {
		return damaged("the %s record has %d bytes", name, len(record))
	}
	for i, place := range places {
		*place = binary.BigEndian.Uint64(b[8*i:])
	}
	return nil
}

func encodeMessage(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend([]byte{recordVersion}, m)
}

func decodeMessage(name string, record []byte, m proto.Message) error {
	b, err := body(name, record)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return damaged("the %s record: %w", name, err)
	}
	return nil
}
