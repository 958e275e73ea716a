package cluster

import (
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

// sendSnapshot streams the state to a member that needs entries that are compacted. It
// always reports the result: raft sends the member nothing else until then.
func (m *Member) sendSnapshot(message *raftpb.Message) {
	to := message.GetTo()
	err := m.streamSnapshot(to, message)
	if err != nil {
		m.log.Warn("snapshot not sent", "to", wire.MemberID(to), "error", err)
	}
	m.mailbox.post(event{run: func(c *core.Core) { c.SnapshotSent(to, err == nil) }})
}

func (m *Member) streamSnapshot(to uint64, message *raftpb.Message) error {
	state, err := m.raftLog.View()
	if err != nil {
		return err
	}
	defer state.Close()
	body, err := proto.Marshal(core.Snapshot(message, state))
	if err != nil {
		return err
	}
	w, err := m.port.OpenSnapshot(m.lifetime, to, &wire.SnapshotHeader{
		Version: wire.SnapshotVersion, Raft: body, Digest: state.Digest,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := state.Each(w.Add); err != nil {
		return err
	}
	return w.Commit()
}

// Snapshot implements transport.Handler. It stages the snapshot beside the state, and
// raft decides whether to install it.
func (m *Member) Snapshot(from uint64, r *transport.SnapshotReader) error {
	if !m.staging.TryLock() {
		return errors.New("another snapshot is being received")
	}
	defer m.staging.Unlock()
	header := r.Header()
	if header.GetVersion() != wire.SnapshotVersion {
		return fmt.Errorf("snapshot of version %d, this member knows version %d", header.GetVersion(), wire.SnapshotVersion)
	}
	message := new(raftpb.Message)
	if err := proto.Unmarshal(header.GetRaft(), message); err != nil {
		return err
	}
	stage, err := m.raftLog.Stage()
	if err != nil {
		return err
	}
	generation, err := fill(stage, r)
	if err != nil {
		return errors.Join(err, stage.Discard())
	}
	return m.offer(from, message, core.Staged{Generation: generation, Digest: header.GetDigest()})
}

func fill(to *raftlog.Stage, r *transport.SnapshotReader) (uint64, error) {
	for {
		pairs, err := r.Next()
		if errors.Is(err, io.EOF) {
			return to.Finish()
		}
		if err != nil {
			return 0, err
		}
		for _, p := range pairs {
			if err := to.Put(p.GetKey(), p.GetValue()); err != nil {
				return 0, err
			}
		}
	}
}

// offer passes a staged snapshot to raft and waits until it is installed or refused.
func (m *Member) offer(from uint64, message *raftpb.Message, s core.Staged) error {
	answer := make(chan error, 1)
	s.Done = func(err error) { answer <- err }
	m.mailbox.post(event{run: func(c *core.Core) { c.ReceiveSnapshot(from, message, s) }})
	select {
	case err := <-answer:
		return err
	case <-m.lifetime.Done():
		return m.stopped()
	}
}
