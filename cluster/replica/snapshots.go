package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// outgoingSnapshot is a snapshot that is being sent.
type outgoingSnapshot struct {
	to     uint64
	cancel context.CancelFunc
}

// startSnapshot starts to stream the state to a member that needs entries that are
// compacted. The result is always reported: raft sends the member nothing else until
// then. An earlier stream to the member ends.
func (r *Replica) startSnapshot(message *raftpb.Message) {
	to := message.GetTo()
	r.cancelSnapshot(to)
	ctx, cancel := context.WithCancel(r.cfg.Lifetime)
	s := &outgoingSnapshot{to, cancel}
	if r.sending == nil {
		r.sending = make(map[uint64]*outgoingSnapshot)
	}
	r.sending[to] = s
	r.cfg.Routine("snapshot", func() {
		defer cancel()
		err := r.streamSnapshot(ctx, s, message)
		if err != nil {
			r.log.Warn("snapshot not sent", "to", wire.MemberID(to), "error", err)
		}
		r.postOf(s, func(c *core.Core) {
			delete(r.sending, to)
			c.SnapshotSent(to, err == nil)
		})
	})
}

// postOf has the loop run an event of a stream, unless another one has replaced that: the core
// would take the event for the other one's.
func (r *Replica) postOf(s *outgoingSnapshot, run func(*core.Core)) {
	r.post(event{run: func(c *core.Core) {
		if r.sending[s.to] == s {
			run(c)
		}
	}})
}

// noteSent reports how many bytes of a snapshot were sent.
func (r *Replica) noteSent(s *outgoingSnapshot, bytes uint64) {
	r.postOf(s, func(c *core.Core) { c.SnapshotProgress(s.to, bytes) })
}

// cancelSnapshot ends the stream to a member, if there is one. It fails.
func (r *Replica) cancelSnapshot(to uint64) {
	if s := r.sending[to]; s != nil {
		s.cancel()
	}
}

// progressBytes is how often the core learns what was sent.
const progressBytes = 1 << 20

func (r *Replica) streamSnapshot(ctx context.Context, s *outgoingSnapshot, message *raftpb.Message) error {
	state, err := r.cfg.Log.View()
	if err != nil {
		return err
	}
	defer state.Close()
	if err := r.confirmSnapshot(ctx, s, state.Index); err != nil {
		return err
	}
	body, err := proto.Marshal(core.Snapshot(message, state))
	if err != nil {
		return err
	}
	w, err := r.peers.OpenSnapshot(ctx, s.to, &wire.SnapshotHeader{
		Version: wire.SnapshotVersion, Raft: body, Digest: state.Digest,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	var sent, reported uint64
	err = state.Each(func(key, value []byte) error {
		sent += uint64(len(key) + len(value))
		r.metrics.SnapshotBytesSent.Add(uint64(len(key) + len(value)))
		if sent >= reported+progressBytes {
			reported = sent
			r.noteSent(s, sent)
		}
		return w.Add(key, value)
	})
	if err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	r.metrics.SnapshotsSent.Add(1)
	return nil
}

// confirmSnapshot waits until the state at index may be sent.
func (r *Replica) confirmSnapshot(ctx context.Context, s *outgoingSnapshot, index uint64) error {
	answer := make(chan error, 1)
	r.postOf(s, func(c *core.Core) {
		c.ConfirmSnapshot(s.to, index, func(err error) { answer <- err })
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Snapshot implements transport.Handler. It stages the snapshot beside the state, and
// raft decides whether to install it.
func (r *Replica) Snapshot(from uint64, received *transport.SnapshotReader) error {
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
func (r *Replica) offer(from uint64, message *raftpb.Message, s core.Staged) error {
	answer := make(chan error, 1)
	s.Done = func(err error) { answer <- err }
	r.post(event{run: func(c *core.Core) { c.ReceiveSnapshot(from, message, s) }})
	select {
	case err := <-answer:
		return err
	case <-r.cfg.Lifetime.Done():
		return r.cfg.Stopped()
	}
}
