package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// hosted is this member's replica of a further group, and what works for it.
type hosted struct {
	number   uint32
	name     string // "": the list does not have it yet; owned by Groups.run
	log      *raftlog.Log
	replica  *replica.Replica
	use      GroupUse
	groups   *Groups
	logger   *slog.Logger    // with the group's number
	started  atomic.Bool     // the replica runs, or has run
	used     atomic.Bool     // use.Started was called
	lifetime context.Context // within that of the member
	end      context.CancelCauseFunc
	routines sync.WaitGroup
	done     chan struct{} // closed when the replica has ended
	attached atomic.Int64  // clients
	ended    atomic.Bool

	// Owned by the replica's loop.
	crashes   *crashReports
	following *followingMembers
	clients   *clients.Server
}

func newHosted(g *Groups, number uint32, log *raftlog.Log) (*hosted, error) {
	acknowledged, err := loadAcknowledged(log)
	if err != nil {
		return nil, err
	}
	h := &hosted{number: number, log: log, groups: g, logger: g.logger.With("group", number), use: g.use(number), done: make(chan struct{})}
	h.lifetime, h.end = context.WithCancelCause(g.lifetime)
	cfg := g.replica()
	cfg.Number, cfg.Log, cfg.Acknowledged, cfg.Host = number, log, acknowledged, h
	cfg.Lifetime, cfg.Done, cfg.Routine, cfg.Logger = h.lifetime, h.done, h.routine, h.logger
	stopped := cfg.Stopped
	cfg.Stopped = func() error {
		if errors.Is(context.Cause(h.lifetime), ErrGroupDeleted) {
			return ErrGroupDeleted
		}
		return stopped()
	}
	cfg.Callbacks = h.use.Callbacks
	changed := cfg.LeaderChanged
	cfg.LeaderChanged = func(leader, term uint64) {
		changed(leader, term)
		h.crashes.consider()
	}
	h.replica = replica.New(cfg)
	return h, nil
}

// routine starts a goroutine that stop and the member wait for.
func (h *hosted) routine(name string, run func()) {
	h.routines.Add(1)
	h.groups.routine(name, func() {
		defer h.routines.Done()
		run()
	})
}

// start loads the replica and starts its loop.
func (h *hosted) start(first bool) error {
	g := h.groups
	c, err := h.replica.Load(first)
	if err != nil {
		return err
	}
	send := func(member uint64, f *wire.Frame) bool {
		f.Group = h.number
		return g.peers().Send(member, f)
	}
	h.crashes = &crashReports{core: c, crashReportsConfig: crashReportsConfig{
		self: g.self, boot: g.boot, evidence: g.evidence(), execute: submitter{h.replica, h}.Execute, send: send,
		post: h.replica.Post, commands: g.commands, routine: h.routine, log: h.logger, lifetime: h.lifetime,
	}}
	h.following = &followingMembers{
		number: h.number, core: c, defaults: g.defaults, group: submitter{h.replica, h}, commands: g.commands,
		routine: h.routine, post: h.replica.Post, log: h.logger, lifetime: h.lifetime,
	}
	h.clients = clients.New(clients.Config{
		Handlers: h.use.Clients, Group: h.number, Core: c, Lifetime: h.lifetime, Stopped: func() error { return context.Cause(h.lifetime) },
		Queue: h.replica.Queue(), Logger: h.logger, Renew: g.commands.RenewClients, Submitting: h.use.Submitting, Addresses: g.addresses, Attached: &h.attached,
		Spend: h.replica.Spend, IsSpent: h.replica.IsSpent,
	})
	h.replica.Start(g.peers(), h.clients)
	h.routine("failure detector", g.detector(h).run)
	return nil
}

// submitter is the replica as what submits commands of the member itself uses it. The registration of this process may have expired, if it
// uses nothing of the group: then the first command has no effect, and is submitted again later, as always.
type submitter struct {
	*replica.Replica
	of *hosted
}

// Execute implements group.
func (s submitter) Execute(ctx context.Context, command []byte) (*wire.Reply, error) {
	s.of.use.Submitting()
	return s.Replica.Execute(ctx, command)
}

// stop ends the replica while the member goes on.
func (h *hosted) stop(why error) {
	h.end(why)
	h.routines.Wait()
	if h.abandon() && h.used.Load() {
		h.use.Ended(why)
	}
}

// abandon fails what is pending when all goroutines have ended, and reports whether no earlier call has done so.
func (h *hosted) abandon() bool {
	if !h.ended.CompareAndSwap(false, true) {
		return false
	}
	h.replica.Abandon()
	close(h.done)
	return true
}

// frame receives a frame, on the peer's reader.
func (h *hosted) frame(from uint64, f *wire.Frame) {
	if body := f.GetCrashEvidence(); body != nil {
		h.replica.Enqueue(from, func(*core.Core) { h.crashes.receive(from, body) }, replica.FrameBytes(f))
		return
	}
	h.replica.Frame(from, f)
}

var _ replica.Host = (*hosted)(nil)

// Ticked implements replica.Host.
func (h *hosted) Ticked() {
	h.crashes.consider()
	h.following.consider()
}

// Published implements replica.Host.
func (h *hosted) Published(*replica.Status) {}

// MembershipChanged implements replica.Host: the members are those of the default group.
func (h *hosted) MembershipChanged(*raftpb.ConfState) {}

// ListsChanged implements replica.Host.
func (h *hosted) ListsChanged(applied uint64) { h.use.ListsChanged(applied) }

// acknowledgedRecord is the name of the local records with what other members have acknowledged, before their IDs.
const acknowledgedRecord = "acknowledged/"

// SaveAcknowledged implements replica.Host.
func (h *hosted) SaveAcknowledged(member uint64, p core.Position) {
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, p.Term), p.Index)
	h.log.SetLocalNoSync(recordOf(member), value)
}

// recordOf is the name of the local record with what a member has acknowledged.
func recordOf(member uint64) string { return acknowledgedRecord + wire.MemberID(member).String() }

// loadAcknowledged returns what SaveAcknowledged has recorded.
func loadAcknowledged(log *raftlog.Log) (peers []*wire.Peer, err error) {
	records, err := log.Locals(acknowledgedRecord)
	if err != nil {
		return nil, err
	}
	for name, value := range records {
		id, err := strconv.ParseUint(strings.TrimPrefix(name, acknowledgedRecord), 16, 64)
		if err != nil || len(value) != 16 {
			return nil, fmt.Errorf("%w: record %q of %d bytes", storage.ErrCorrupt, name, len(value))
		}
		peers = append(peers, &wire.Peer{
			Member: id, AcknowledgedTerm: binary.BigEndian.Uint64(value), AcknowledgedIndex: binary.BigEndian.Uint64(value[8:]),
		})
	}
	return peers, nil
}
