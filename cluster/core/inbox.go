package core

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// maxInbox bounds the bytes of commands that wait at the leader. Submissions beyond it
// are dropped; their members retry.
const maxInbox = 32 << 20

// inbox gathers the submissions that the leader has not proposed yet.
type inbox struct {
	submissions []*wire.Submission
	bytes       int
}

func (b *inbox) empty() bool { return len(b.submissions) == 0 }

func (b *inbox) add(s *wire.Submission) {
	size := proto.Size(s)
	if len(s.GetCalls()) == 0 || b.bytes+size > maxInbox { // an empty one costs memory and counts next to nothing
		return
	}
	b.submissions = append(b.submissions, s)
	b.bytes += size
}

func (b *inbox) clear() { *b = inbox{} }

// appendBatch appends an encoded Batch with the first submissions: as many as fit into
// an entry, and at least one if there is any.
func (b *inbox) appendBatch(data []byte, time int64) ([]byte, error) {
	data, err := proto.MarshalOptions{}.MarshalAppend(data, &wire.Batch{Version: wire.BatchVersion, Time: time})
	if err != nil {
		return nil, err
	}
	start, taken := len(data), 0
	for _, s := range b.submissions {
		size := proto.Size(s)
		if taken > 0 && len(data)-start+size > maxBatchBytes {
			break
		}
		data = protowire.AppendTag(data, submissionsField, protowire.BytesType)
		data = protowire.AppendVarint(data, uint64(size))
		if data, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(data, s); err != nil {
			return nil, err
		}
		b.bytes -= size
		taken++
	}
	clear(b.submissions[:taken])
	b.submissions = b.submissions[taken:]
	if len(b.submissions) == 0 {
		b.clear()
	}
	return data, nil
}

// submissionsField is the field number of Batch.submissions. They are appended one by
// one, because the encoded size decides how many fit.
const submissionsField = 3
