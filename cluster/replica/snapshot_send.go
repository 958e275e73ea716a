package replica

import (
	"context"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// outgoingSnapshot is a snapshot that is being sent.
type outgoingSnapshot struct {
	to     uint64
	cancel context.CancelFunc
}

// snapshotSender streams snapshots, each on a goroutine of its own.
type snapshotSender struct {
	cfg     *Config
	metrics *Metrics
	post    func(run func(*core.Core)) // has the loop run an event
	peers   Peers                      // set before the loop starts

	sending map[uint64]*outgoingSnapshot // by peer; owned by the loop
}

// start starts to stream the state to a member that needs entries that are
// compacted. The result is always reported: raft sends the member nothing else until
// then. An earlier stream to the member ends.
func (n *snapshotSender) start(message *raftpb.Message) {
	to := message.GetTo()
	n.cancel(to)
	ctx, cancel := context.WithCancel(n.cfg.Lifetime)
	s := &outgoingSnapshot{to, cancel}
	if n.sending == nil {
		n.sending = make(map[uint64]*outgoingSnapshot)
	}
	n.sending[to] = s
	n.cfg.Routine("snapshot", func() {
		defer cancel()
		err := n.stream(ctx, s, message)
		if err != nil {
			n.cfg.Logger.Warn("snapshot not sent", "to", wire.MemberID(to), "error", err)
		}
		n.postOf(s, func(c *core.Core) {
			delete(n.sending, to)
			c.SnapshotSent(to, err == nil)
		})
	})
}

// postOf has the loop run an event of a stream, unless another one has replaced that: the core
// would take the event for the other one's.
func (n *snapshotSender) postOf(s *outgoingSnapshot, run func(*core.Core)) {
	n.post(func(c *core.Core) {
		if n.sending[s.to] == s {
			run(c)
		}
	})
}

// noteSent reports how many bytes of a snapshot were sent.
func (n *snapshotSender) noteSent(s *outgoingSnapshot, bytes uint64) {
	n.postOf(s, func(c *core.Core) { c.SnapshotProgress(s.to, bytes) })
}

// cancel ends the stream to a member, if there is one. It fails.
func (n *snapshotSender) cancel(to uint64) {
	if s := n.sending[to]; s != nil {
		s.cancel()
	}
}

// progressBytes is how often the core learns what was sent.
const progressBytes = 1 << 20

func (n *snapshotSender) stream(ctx context.Context, s *outgoingSnapshot, message *raftpb.Message) error {
	state, err := n.confirmed(ctx, s, 0)
	if err != nil {
		return err
	}
	// The turn begins behind the agreement, which may take some election timeouts where voters are down.
	turn := n.cfg.Snapshots.join(s.to, n.cfg.Number)
	defer turn.leave()
	if !turn.hasBegun() {
		_ = state.Close()
		n.postOf(s, func(c *core.Core) { c.SnapshotWaits(s.to) })
		if err := turn.await(ctx); err != nil {
			return err
		}
		if state, err = n.confirmed(ctx, s, state.Index); err != nil {
			return err
		}
		n.postOf(s, func(c *core.Core) { c.SnapshotBegins(s.to, state.Index) })
	}
	defer state.Close()
	return n.send(ctx, s, message, state)
}

// confirmed returns the state on the disk once it may be sent, as that at an earlier index may already.
func (n *snapshotSender) confirmed(ctx context.Context, s *outgoingSnapshot, earlier uint64) (*raftlog.View, error) {
	state, err := n.cfg.Log.View()
	if err != nil {
		return nil, err
	}
	if state.Index != earlier {
		err = n.confirm(ctx, s, state.Index)
	}
	if err != nil {
		_ = state.Close()
		return nil, err
	}
	return state, nil
}

func (n *snapshotSender) send(ctx context.Context, s *outgoingSnapshot, message *raftpb.Message, state *raftlog.View) error {
	body, err := proto.Marshal(core.Snapshot(message, state))
	if err != nil {
		return err
	}
	w, err := n.peers.OpenSnapshot(ctx, s.to, &wire.SnapshotHeader{
		Version: wire.SnapshotVersion, Raft: body, Digest: state.Digest,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	var sent, reported uint64
	err = state.Each(func(key, value []byte) error {
		sent += uint64(len(key) + len(value))
		n.metrics.SnapshotBytesSent.Add(uint64(len(key) + len(value)))
		if sent >= reported+progressBytes {
			reported = sent
			n.noteSent(s, sent)
		}
		return w.Add(key, value)
	})
	if err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	n.metrics.SnapshotsSent.Add(1)
	return nil
}

// confirm waits until the state at index may be sent.
func (n *snapshotSender) confirm(ctx context.Context, s *outgoingSnapshot, index uint64) error {
	answer := make(chan error, 1)
	n.postOf(s, func(c *core.Core) {
		c.ConfirmSnapshot(s.to, index, func(err error) { answer <- err })
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
