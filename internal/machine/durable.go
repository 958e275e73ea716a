package machine

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// The durable form of the state: one key for each part that changes on its own. A
// waiter has a key of its own, so that joining a long queue is one small write.
// Names contain no NUL, so the keys of two queues never collide.
const (
	machineKey = "m" // MachineState

	memberKind      = 'M' // + member                          MemberState
	checkKind       = 'c' // + member + name                   CheckRecord
	incarnationKind = 'i' // + incarnation                     IncarnationState
	sessionKind     = 's' // + session                         SessionState
	lockKind        = 'l' // + name                            LockState
	electionKind    = 'e' // + name                            LockState
	jobLockKind     = 'j' // + name of a job + NUL + key       LockState
	jobKind         = 'J' // + name                            JobState
	runKind         = 'r' // + name of a job + NUL + key       RunState; without a key + NUL + number
	shardSetKind    = 'a' // + name                            ShardSetState
	shardWorkerKind = 'b' // + name of a set + NUL + number    ShardWorkerState
	shardKind       = 'f' // + name of a set + NUL + number    ShardState
	semaphoreKind   = 'S' // + name                            SemaphoreState
	shareKind       = 'h' // + name of a lock + NUL + number   ShareState
	permitKind      = 'p' // + name + NUL + fence              PermitState
	setKind         = 'g' // + fence                           SetState
	setWaiterKind   = 'v' // + position                        SetWaiterState
	passedKind      = 'q' // + position of a set that waits    PassedState
	slotKind        = 'n' // + name of semaphore + NUL + number  SlotState
	waiterKind      = 'w' // + key of lock, election or semaphore + NUL + position  WaiterState
	entryKind       = 'k' // + key                             KeyState
	keyDelayKind    = 'd' // + key                             KeyDelayState
	ticketKind      = 't' // + incarnation + sequence number   Reply
	groupKind       = 'G' // + number of a further group       GroupState
	tombstoneKind   = 'x' // + incarnation of a client         EndedClientState
)

func lockKey(election bool, name string) string {
	if election {
		return string(electionKind) + name
	}
	return string(lockKind) + name
}

func semaphoreKey(name string) string { return string(semaphoreKind) + name }
func entryKey(key string) string      { return string(entryKind) + key }

func appendTicketKey(b []byte, incarnation *wire.ID, seq uint64) []byte {
	b = append(append(b, ticketKind), incarnation[:]...)
	return binary.BigEndian.AppendUint64(b, seq)
}

func (k *member) key() string {
	return string(binary.BigEndian.AppendUint64([]byte{memberKind}, k.id))
}

func (inc *incarnation) key() string { return string(incarnationKind) + string(inc.id[:]) }

func (t *tombstone) key() string { return string(tombstoneKind) + string(t.id[:]) }

func (s *session) key() string { return string(sessionKind) + string(s.id[:]) }

func (c *check) key() string {
	return string(binary.BigEndian.AppendUint64([]byte{checkKind}, c.member.id)) + c.name
}

func (j *job) durable() string { return string(jobKind) + j.name }

func (r *run) durable() string {
	if r.key == "" {
		return numbered(runKind, r.job.name+"\x00", r.period)
	}
	return string(runKind) + jobName(r.job.name, r.key)
}

func (w *waiter) key() string { return numbered(waiterKind, w.of(), w.position) }
func (p *permit) key() string { return numbered(permitKind, p.semaphore.name(), p.fence) }

func numbered(kind byte, of string, n uint64) string {
	b := make([]byte, 0, 1+len(of)+1+8)
	b = append(append(append(b, kind), of...), 0)
	return string(binary.BigEndian.AppendUint64(b, n))
}

// stored is an outcome as it is kept.
type stored struct{ reply *wire.Reply }

func (s stored) state() proto.Message { return s.reply }

func (a *answer) state() proto.Message { return a.reply() }

func (m *Machine) state() proto.Message {
	st := &wire.MachineState{
		Version: wire.StateVersion, FeatureLevel: m.levels.agreed, Now: m.now,
		Fences: m.fences, Epoch: m.epoch, Positions: m.positions,
		Voters: m.settings.voters, ReplaceAfter: m.settings.replaceAfter, RemoveAfter: m.settings.removeAfter,
		Ended: m.endings, Changes: m.keys.changes, LockFloor: m.keys.lockFloor, LockFloorAt: m.keys.lockFloorAt,
		Groups: m.groups.created, GroupFences: m.groups.fences,
	}
	if f := m.following; f != nil {
		st.Following = &wire.Following{Group: f.group, Index: f.index, Voters: f.voters, Sealed: f.sealed}
	}
	return st
}

func (k *member) state() proto.Message {
	return &wire.MemberState{
		Boot: k.boot, Attempt: k.attempt, Incarnation: k.incarnation[:], Silent: k.silent, Removed: k.removed,
		Token: k.token[:], FeatureLevel: k.level, Key: []byte(k.public),
		Name: k.name, Advertise: k.advertise, Ephemeral: k.ephemeral, Since: k.since, Crashed: k.crashed,
	}
}

func (inc *incarnation) state() proto.Message {
	return &wire.IncarnationState{
		Member: inc.member, Ttl: inc.ttl, Renewed: inc.renewed, Floor: inc.window.floor, Barred: inc.barred,
		Client: inc.client, Until: inc.until,
	}
}

func (t *tombstone) state() proto.Message { return &wire.EndedClientState{Until: t.until} }

func (c *check) state() proto.Message {
	return &wire.CheckRecord{State: c.status, Ttl: c.ttl, Refreshed: c.refreshed, ForClient: c.forClient}
}

func (s *session) state() proto.Message {
	st := &wire.SessionState{
		Name: s.name, Member: s.member, Ttl: s.ttl, LockDelay: s.lockDelay, CreateIndex: s.createIndex,
		Behavior: s.behavior, Checks: s.checks, Ended: s.ended, EndedAt: s.endedAt, Graceful: s.graceful,
		Attached: s.attached, Client: s.client, Standalone: s.standalone, Renewed: s.renewed,
	}
	if s.incarnation != nil {
		st.Incarnation = s.incarnation.id[:]
	}
	return st
}

func (l *lock) state() proto.Message {
	st := &wire.LockState{
		Handle: l.handle, Holds: l.holds, Fence: l.fence, DelayUntil: l.delayUntil, Lingering: l.lingering,
		Since: l.since, Label: l.label(),
	}
	if l.owner != nil {
		st.Session = l.owner.id[:]
	}
	if leader := l.leader(); leader != nil {
		st.Value = leader.Value
	}
	st.Incarnation, st.Seq = ticketState(l.ticket)
	st.Ends, st.Requested = l.bound().state()
	return st
}

func (s *semaphore) state() proto.Message {
	return &wire.SemaphoreState{Limit: s.limit, Resized: s.resized}
}

func (p *permit) state() proto.Message {
	st := &wire.PermitState{Permits: p.n, DelayUntil: p.delayUntil, Slots: p.slots}
	if p.owner != nil {
		st.Session = p.owner.id[:]
	}
	st.Incarnation, st.Seq = ticketState(p.ticket)
	st.Ends, st.Requested = p.end.state()
	return st
}

// formerSlot is what is remembered of a number as a record.
type formerSlot struct{ *slots.Former }

func (f formerSlot) key() string { return numbered(slotKind, f.Semaphore, uint64(f.Number)) }

func (f formerSlot) state() proto.Message {
	return &wire.SlotState{Session: f.Session, Position: f.Position}
}

func ticketState(t ticket) (incarnation []byte, seq uint64) {
	if t == (ticket{}) {
		return nil, 0
	}
	return t.by.id[:], t.seq
}

func (w *waiter) state() proto.Message {
	st := &wire.WaiterState{
		Session: w.session.id[:], Handle: w.handle, Permits: w.permits, Value: w.value, Lingering: w.lingering,
		Incarnation: w.ticket.by.id[:], Seq: w.ticket.seq, Since: w.since, Label: w.label,
		Shared: w.shared, MaxHold: w.maxHold,
	}
	if t := w.terms; t != nil {
		st.Attempts, st.Keep, st.Every = t.attempts, t.keep, t.every
	}
	return st
}

func (j *job) state() proto.Message {
	return &wire.JobState{Forgets: j.forgets, Floor: j.floor, Periods: j.periods}
}

func (r *run) state() proto.Message {
	return &wire.RunState{
		Result: r.result, Attempts: r.attempts, Fence: r.fence, Session: r.session[:], Member: r.member, Client: r.client,
		Started: r.started, Ended: r.ended, Detail: r.detail, Keep: r.keep, Every: r.every,
	}
}

// entry is a key's entry as a record.
type entry struct{ *fact.Entry }

func (e entry) state() proto.Message {
	st := &wire.KeyState{
		Value: e.Value, Flags: e.Flags, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex,
		LockIndex: e.LockIndex, Fence: e.Fence,
	}
	if !e.Session.IsZero() {
		st.Session = e.Session[:]
	}
	return st
}

func (d *keyDelay) state() proto.Message { return &wire.KeyDelayState{Until: d.until} }
