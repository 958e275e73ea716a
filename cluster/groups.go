package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/spread"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// The further groups. The default group's machine lists them, and each member has a replica of each: what the list
// has and this member has not, it starts; what is deleted it stops, and erases. The members that the list names for
// a group begin its log, each with the same state; the others receive a snapshot.
//
// A further group has the members and voters of the default one (following_members.go). It needs no answer of the
// default group to grant, renew or release.

// ErrGroupDeleted: the group has been deleted.
var ErrGroupDeleted = tickets.ErrDeleted

// GroupUse is the use that this process makes of its replica of a further group.
type GroupUse struct {
	replica.Callbacks
	Clients      clients.Handlers
	ListsChanged func(applied uint64) // see Config
	Submitting   func()               // the member is about to submit a command of its own, for which this process must be registered
	// Started is called when the replica of the group with that name runs, and Ended when it does no more and the member
	// goes on: the group is deleted. Started does not block.
	Started func(name string, r *replica.Replica)
	Ended   func(why error)
}

// Groups runs this member's replicas of the further groups. Its methods may be used on any goroutine, but for open, run and
// tearDown.
type Groups struct {
	groupsConfig
	erased  atomic.Uint32                      // up to this number no other log is missing than that of a deleted group
	hosted  atomic.Pointer[map[uint32]*hosted] // by number, those of which there is a log; never changed in place
	changed wait.Broadcast                     // set when one has started, or ended
	due     wait.Signal                        // set when the default group's list may have changed

	mu        sync.Mutex
	processes map[uint64]core.Process // guarded by mu; with the present inbound connections
}

// groupsConfig is what groups needs of its member. What is in it may be used on any goroutine.
type groupsConfig struct {
	log        *raftlog.Log // of the default group
	use        func(number uint32) GroupUse
	firstState func(*fact.GroupRecord) []wire.Change
	replica    func() replica.Config                            // without what hosted sets
	priority   func(id uint64) (priority int32, connected bool) // see spread.First
	self, boot uint64
	defaults   defaultGroup
	evidence   func() *crash.Evidence
	roster     *roster.Roster
	peers      func() replica.Peers
	addresses  func() []string // at which clients find members
	detector   func(*hosted) *failureDetector
	commands   Commands
	logger     *slog.Logger
	lifetime   context.Context
	routine    func(name string, run func())
	fail       func(error)
	stopped    func() error
}

func newGroups(cfg groupsConfig) *Groups {
	g := &Groups{groupsConfig: cfg, due: wait.NewSignal(), processes: make(map[uint64]core.Process)}
	g.hosted.Store(&map[uint32]*hosted{})
	return g
}

// open opens the logs that the directory has, before the port: the hello says how far each is durable.
func (g *Groups) open() error {
	erased, err := raftlog.Erased(g.log)
	if err != nil {
		return err
	}
	g.erased.Store(erased)
	numbers, err := raftlog.Groups(g.log)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		if _, err := g.host(number); err != nil {
			return err
		}
	}
	return nil
}

// host opens the log of a group.
func (g *Groups) host(number uint32) (*hosted, error) {
	log, err := g.log.OpenGroup(number)
	if err != nil {
		return nil, err
	}
	if err := replica.CheckDivergence(log); err != nil {
		return nil, err
	}
	h, err := newHosted(g, number, log)
	if err != nil {
		return nil, err
	}
	g.edit(func(all map[uint32]*hosted) { all[number] = h })
	return h, nil
}

// edit changes the set of those that are hosted.
func (g *Groups) edit(change func(map[uint32]*hosted)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := maps.Clone(*g.hosted.Load())
	change(all)
	g.hosted.Store(&all)
}

// all returns those that are hosted, by number.
func (g *Groups) all() []*hosted {
	by := *g.hosted.Load()
	list := make([]*hosted, 0, len(by))
	for _, number := range slices.Sorted(maps.Keys(by)) {
		list = append(list, by[number])
	}
	return list
}

// started returns a group's replica that runs; nil: there is none.
func (g *Groups) started(number uint32) *hosted {
	if h := (*g.hosted.Load())[number]; h != nil && h.started.Load() {
		return h
	}
	return nil
}

// run starts and ends replicas as the default group's list changes, until the member stops.
func (g *Groups) run() {
	for {
		if err := g.settle(g.defaults.Status().Directory); err != nil {
			g.fail(fmt.Errorf("further group: %w", err))
			return
		}
		select {
		case <-g.due:
		case <-g.lifetime.Done():
			return
		}
	}
}

// settle ends what is deleted, whose names may be those of new groups, and starts what is to run. Then it erases what is deleted: what is
// missing afterwards was deleted. A group with a log that the list does not have yet has been created, in entries that this member is
// to apply again.
func (g *Groups) settle(list *fact.Directory) error {
	for _, h := range g.all() {
		if list.Dropped(h.number) {
			h.stop(ErrGroupDeleted)
		}
	}
	if err := g.startListed(list); err != nil {
		return err
	}
	for _, h := range g.all() {
		if !list.Dropped(h.number) {
			continue
		}
		if err := raftlog.Erase(h.log, list.Created); err != nil {
			return err
		}
		g.noteErased(h.number, list.Created)
		g.logger.Info("group deleted", "group", h.number, "groupName", h.name)
	}
	return nil
}

// noteErased notes that a group's log is erased, and up to which number no other log is missing than that of a deleted group. It does so
// before the log is missing: see durable.
func (g *Groups) noteErased(number, upTo uint32) {
	g.erased.Store(upTo)
	g.edit(func(all map[uint32]*hosted) { delete(all, number) })
	g.changed.Set()
}

// startListed starts what the list has, and what was created in entries that this member is to apply again. A group whose log is erased was
// deleted in such entries. Its log must not begin again: it would forget votes and entries that a member which has not applied the deletion
// still counts.
func (g *Groups) startListed(list *fact.Directory) error {
	for _, r := range list.Groups {
		if (*g.hosted.Load())[r.Number] == nil && r.Number > g.erased.Load() {
			if _, err := g.host(r.Number); err != nil {
				return err
			}
		}
	}
	for _, h := range g.all() {
		r := list.Group(h.number)
		if list.Dropped(h.number) || r == nil && !h.log.Bootstrapped() {
			continue
		}
		if !h.started.Load() {
			if err := g.start(h, r); err != nil {
				return err
			}
		}
		if r != nil && !h.used.Load() {
			h.name = r.Name
			h.use.Started(r.Name, h.replica)
			h.used.Store(true)
			g.changed.Set()
		}
	}
	return nil
}

// awaitedRecord is the name of the local record of a group whose snapshot is still to come: without it, its log would look erased.
const awaitedRecord = "awaited"

// begin begins the log of a group that has none, if this member is a founder, and reports whether it is to campaign first.
func (g *Groups) begin(h *hosted, r *fact.GroupRecord) (first bool, err error) {
	if !slices.Contains(r.Voters, g.self) && !slices.Contains(r.Standbys, g.self) {
		h.log.SetLocalNoSync(awaitedRecord, []byte{})
		return false, nil
	}
	state := g.firstState(r)
	conf := &raftpb.ConfState{Voters: r.Voters, Learners: r.Standbys}
	if err := h.log.BootstrapWith(conf, state, core.FirstDigest(state)); err != nil {
		return false, err
	}
	return spread.First(r.Number, r.Voters, g.priority) == g.self, nil
}

// start starts the replica of a group with that record; nil: the list does not have it yet.
func (g *Groups) start(h *hosted, r *fact.GroupRecord) (err error) {
	first := false
	if r != nil && !h.log.Bootstrapped() {
		if first, err = g.begin(h, r); err != nil {
			return err
		}
	}
	if err := h.start(first); err != nil {
		return err
	}
	g.mu.Lock()
	for _, p := range g.processes {
		h.replica.Acknowledged.Connected(p)
	}
	h.started.Store(true)
	g.mu.Unlock()
	return nil
}

// await blocks until the group's replica runs here and is in use and returns it, or ctx is done. The list must have the group:
// if it has it no more, the error is ErrGroupDeleted.
func (g *Groups) await(ctx context.Context, number uint32) (*hosted, error) {
	var h *hosted
	err := g.until(ctx, func() bool {
		if h = g.started(number); h != nil && !h.used.Load() {
			h = nil
		}
		return h != nil || g.defaults.Status().Directory.Dropped(number)
	})
	if err == nil && h == nil {
		err = ErrGroupDeleted
	}
	return h, err
}

// until blocks until the condition holds after a replica has started or a log was erased, ctx is done, or the member stops.
func (g *Groups) until(ctx context.Context, met func() bool) error {
	for {
		changed := g.changed.Wait()
		if met() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-g.lifetime.Done():
			return g.stopped()
		}
	}
}

// connected notes a connection from a process.
func (g *Groups) connected(p core.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.processes[p.Member] = p
	for _, h := range *g.hosted.Load() {
		h.replica.Acknowledged.Connected(p)
	}
}

// forget forgets a member that was removed.
func (g *Groups) forget(member uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.processes, member)
	for _, h := range *g.hosted.Load() {
		h.replica.Acknowledged.Forget(member)
		h.log.SetLocalNoSync(recordOf(member), nil)
	}
}

// each calls f with each replica that runs.
func (g *Groups) each(f func(*hosted)) {
	for _, h := range g.all() {
		if h.started.Load() {
			f(h)
		}
	}
}

// listsChanged reports that the member shows something else of the members, which lists of each further group have too.
func (g *Groups) listsChanged() {
	g.each(func(h *hosted) { h.ListsChanged(0) }) // no entry of the group has changed anything
}

// frame receives a frame of a further group, on the peer's reader. Where this member has no replica yet, or no more, it is
// dropped: Raft sends again.
func (g *Groups) frame(from uint64, f *wire.Frame) {
	if h := g.started(f.GetGroup()); h != nil {
		h.frame(from, f)
	}
}

// snapshot receives the snapshot of a further group.
func (g *Groups) snapshot(from uint64, r *transport.SnapshotReader) error {
	h := g.started(r.Header().GetGroup())
	if h == nil {
		return fmt.Errorf("snapshot of group %d: this member has none of that number", r.Header().GetGroup())
	}
	return h.replica.Snapshot(from, r)
}

// durable adds the logs of the further groups to what the hello reports.
func (g *Groups) durable(d *transport.Durable) {
	logs := g.all()
	d.Created = g.erased.Load() // behind the logs: one that is missing for its deletion is counted
	for _, h := range logs {
		term, index := h.replica.Acknowledged.Durable()
		d.Groups = append(d.Groups, &wire.GroupPosition{Group: h.number, Term: term, Index: index})
	}
}

// admit refuses a process that has forgotten entries of a further group.
func (g *Groups) admit(p transport.Peer) error {
	for _, h := range g.all() {
		at, found := slices.BinarySearchFunc(p.Durable.Groups, h.number, func(o *wire.GroupPosition, number uint32) int {
			return cmp.Compare(o.GetGroup(), number)
		})
		var position core.Position
		switch {
		case found:
			o := p.Durable.Groups[at]
			position = core.Position{Term: o.GetTerm(), Index: o.GetIndex()}
		case h.number <= p.Durable.Created:
			continue // it knows that the group is deleted
		}
		if err := h.replica.Acknowledged.Admit(p, position); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends what is left of the replicas when their goroutines have ended, with the member: in order or not.
func (g *Groups) abandon(orderly bool) {
	for _, h := range g.all() {
		h.abandon()
		h.replica.Finish(orderly)
	}
}
