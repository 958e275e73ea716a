package replica

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// acknowledged is what this member knows of the entries that the others have
// acknowledged, and the processes that acknowledge them.
type acknowledged struct {
	mu        sync.Mutex
	known     core.Acknowledged       // guarded by mu
	processes map[uint64]core.Process // guarded by mu; with the present inbound connections
}

// load continues with what an earlier process has recorded.
func (a *acknowledged) load(peers []*wire.Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes = make(map[uint64]core.Process)
	for _, p := range peers {
		a.known.Load(p.GetMember(), core.Position{Term: p.GetAcknowledgedTerm(), Index: p.GetAcknowledgedIndex()})
	}
}

func (a *acknowledged) connected(p core.Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes[p.Member] = p
}

func (a *acknowledged) process(member uint64) core.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.processes[member]
}

// learn records what an admissible message from a process acknowledges.
func (a *acknowledged) learn(c *core.Core, from core.Process, message *raftpb.Message) {
	if p, ok := c.Acknowledges(message); ok && from.Member != 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.known.Add(from, p)
	}
}

// applied records that a process has applied the entries up to index.
func (a *acknowledged) applied(from core.Process, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from.Member != 0 {
		a.known.AddApplied(from, index)
	}
}

func (a *acknowledged) commit(p core.Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Commit(p)
}

func (a *acknowledged) unsaved(save func(member uint64, p core.Position)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Unsaved(save)
}

func (a *acknowledged) forget(member uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Forget(member)
	delete(a.processes, member)
}

// admit refuses a process that has forgotten entries which its member acknowledged. It
// could help to elect a leader that has forgotten them too.
func (a *acknowledged) admit(p transport.Peer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	process := core.Process{Member: p.Member, Boot: p.Boot, Incarnation: p.Incarnation}
	if err := a.known.Check(process, core.Position{Term: p.DurableTerm, Index: p.DurableIndex}); err != nil {
		return &transport.RefusedError{Reason: transport.ReasonForgot, Detail: err.Error()}
	}
	return nil
}

// Connected takes the process at the other end of a connection that has just been accepted.
func (r *Replica) Connected(p core.Process) { r.acknowledged.connected(p) }

// Forget forgets a member that was removed.
func (r *Replica) Forget(member uint64) { r.acknowledged.forget(member) }

// Admit refuses a process that has forgotten entries which its member acknowledged: the error is a
// [transport.RefusedError].
func (r *Replica) Admit(p transport.Peer) error { return r.acknowledged.admit(p) }

// Durable returns how far the log is on the disk. What this member acknowledges is durable before,
// so a hello made afterwards never reports less.
func (r *Replica) Durable() (term, index uint64) {
	p := r.durable.Load()
	return p.Term, p.Index
}

// noteProgress records how far this member's disk has come, and the commit index of a
// leader. It runs on the loop's goroutine before the messages that depend on it are sent.
func (r *Replica) noteProgress() {
	if p := r.core.Durable(); p != *r.durable.Load() {
		r.durable.Store(&p)
	}
	if s := r.core.Status(); s.Leads {
		r.acknowledged.commit(core.Position{Term: s.Term, Index: s.Commit})
	}
}

// acknowledgedTicks is after how many ticks changed acknowledgments are recorded on disk. A
// crash of this member loses the latest ones, of which only other peers then know.
const acknowledgedTicks = 10

func (r *Replica) saveAcknowledged() {
	if r.ticks++; r.ticks%acknowledgedTicks == 0 {
		r.acknowledged.unsaved(r.cfg.Host.SaveAcknowledged)
	}
}
