package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// snapshotReceiver takes one snapshot at a time, each on the goroutine that reads it.
type snapshotReceiver struct {
	cfg     *Config
	post    func(run func(*core.Core)) // has the loop run an event
	staging sync.Mutex                 // held while a snapshot is received
}

// receive is Replica.Snapshot.
func (r *snapshotReceiver) receive(from uint64, received *transport.SnapshotReader) error {
	if !r.staging.TryLock() {
		return errors.New("another snapshot is being received")
	}
	defer r.staging.Unlock()
	header := received.Header()
	if header.GetVersion() != wire.SnapshotVersion {
		return fmt.Errorf("snapshot of version %d, this member knows version %d", header.GetVersion(), wire.SnapshotVersion)
	}
	if n := len(header.GetRaft()); n > maxSnapshotMessage {
		return fmt.Errorf("malformed snapshot: a message of %d bytes, want at most %d", n, maxSnapshotMessage)
	}
	message := new(raftpb.Message)
	if err := proto.Unmarshal(header.GetRaft(), message); err != nil {
		return err
	}
	stage, err := r.cfg.Log.Stage()
	if err != nil {
		return err
	}
	generation, err := fill(stage, received)
	if err != nil {
		return errors.Join(err, stage.Discard())
	}
	return r.offer(from, message, core.Staged{Generation: generation, Digest: header.GetDigest()})
}

// maxSnapshotMessage bounds, in bytes, Raft's message in the header of a snapshot, which has no
// entries.
const maxSnapshotMessage = 256 << 10

func fill(to *raftlog.Stage, r *transport.SnapshotReader) (uint64, error) {
	var last []byte
	for {
		pairs, err := r.Next()
		if errors.Is(err, io.EOF) {
			return to.Finish()
		}
		if err != nil {
			return 0, err
		}
		for key, value := range pairs.All() {
			if bytes.Compare(key, last) <= 0 { // and no key is empty
				return 0, fmt.Errorf("malformed snapshot: key %q follows key %q", key, last)
			}
			if err := to.Put(key, value); err != nil {
				return 0, err
			}
			last = key
		}
	}
}

// offer passes a staged snapshot to raft and waits until it is installed or refused.
func (r *snapshotReceiver) offer(from uint64, message *raftpb.Message, s core.Staged) error {
	answer := make(chan error, 1)
	s.Done = func(err error) { answer <- err }
	r.post(func(c *core.Core) { c.ReceiveSnapshot(from, message, s) })
	select {
	case err := <-answer:
		return err
	case <-r.cfg.Lifetime.Done():
		return r.cfg.Stopped()
	}
}
