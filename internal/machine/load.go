package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

var (
	// ErrCorrupt: no machine can have written the pairs.
	ErrCorrupt = errors.New("machine: the stored state is damaged")
	// ErrNewer: a later version wrote the pairs.
	ErrNewer = errors.New("machine: the stored state was written by a newer version")
)

// Load rebuilds the machine from all changes written so far, sorted by key. No
// pairs at all yield the machine before the first entry. The bytes are copied.
func Load(pairs iter.Seq2[[]byte, []byte]) (*Machine, error) { return LoadAt(pairs, wire.FeatureLevel) }

// LoadAt is Load by a build that supports feature levels up to the given one.
func LoadAt(pairs iter.Seq2[[]byte, []byte], supported uint32) (*Machine, error) {
	ld := &loader{m: New()}
	ld.m.levels.supported = supported
	for key, value := range pairs {
		// The version follows pairs that depend on it: read on to find it.
		if err := ld.pair(string(key), value); err != nil && ld.err == nil {
			ld.err = fmt.Errorf("%w: key %q: %w", ErrCorrupt, key, err)
		}
	}
	switch {
	case ld.version > wire.StateVersion:
		return nil, fmt.Errorf("%w: version %d; this one reads up to %d", ErrNewer, ld.version, wire.StateVersion)
	case ld.m.levels.check() != nil:
		return nil, ld.m.levels.check()
	case ld.err != nil:
		return nil, ld.err
	}
	if err := ld.link(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return ld.m, nil
}

// loader collects records that refer to others; they are linked when all are read.
type loader struct {
	m        *Machine
	version  uint32 // 0: none read
	pairs    int
	err      error
	checks   []pending[check, uint64] // with the member
	sessions []pending[session, *wire.SessionState]
	locks    []pending[lock, *wire.LockState]
	permits  []pending[permit, *wire.PermitState]
	shares   []pending[share, *wire.ShareState]
	slots    []*slots.Former
	sets     []pending[set, *wire.SetState]
	runs     []pending[run, string] // with the job's name
	workers  []pending[worker, *wire.ShardWorkerState]
	assigned []assigned
	waiters  []pending[waiter, *wire.WaiterState]
	tickets  []pending[wire.Ticket, *wire.Reply]

	setWaiters []pending[set, *wire.SetWaiterState]
	passings   map[uint64]uint32 // by position: times that a set that waits was passed over
}

// pending is an object read, and the record from which it is linked.
type pending[T, S any] struct {
	of    *T
	state S
	at    string // of a waiter: the durable key it waits for; of a permit or a share: the name
}

var (
	errShape   = errors.New("a key or field has the wrong length")
	errKind    = errors.New("unknown kind of key")
	errRange   = errors.New("a value is out of range")
	errTwice   = errors.New("a duplicate")
	errLoose   = errors.New("a reference to something that does not exist")
	errNeither = errors.New("neither held nor delayed")
	errFence   = errors.New("a fence that was never granted, or granted twice")
	errAbsent  = errors.New("the machine's own record is missing")
)

func (ld *loader) pair(key string, value []byte) error {
	if key == "" {
		return errShape
	}
	if !bounded(key[0], value) {
		return errRange
	}
	ld.pairs++
	rest := key[1:]
	switch key[0] {
	case machineKey[0], groupKind:
		return ld.ofGroup(key[0], rest, value)
	case memberKind:
		return ld.member(rest, value)
	case checkKind:
		return ld.check(rest, value)
	case incarnationKind:
		return ld.incarnation(rest, value)
	case sessionKind:
		return ld.session(rest, value)
	case ticketKind:
		return ld.outcome(rest, value)
	case tombstoneKind:
		return ld.tombstone(rest, value)
	}
	if rest == "" {
		return errShape // all other kinds have a name
	}
	switch key[0] {
	case lockKind, electionKind, jobLockKind:
		return ld.lock(key, value)
	case jobKind:
		return ld.job(rest, value)
	case runKind:
		return ld.run(rest, value)
	case shardSetKind, shardWorkerKind, shardKind:
		return shardLoader{ld}.pair(key[0], rest, value)
	case semaphoreKind:
		return ld.semaphore(rest, value)
	case permitKind:
		return ld.permit(rest, value)
	case shareKind:
		return ld.share(rest, value)
	case setKind:
		return ld.set(rest, value)
	case setWaiterKind:
		return ld.setWaiter(rest, value)
	case passedKind:
		return ld.passed(rest, value)
	case slotKind:
		return ld.slot(rest, value)
	case waiterKind:
		return ld.waiter(rest, value)
	case entryKind:
		return ld.entry(rest, value)
	case keyDelayKind:
		return ld.keyDelay(rest, value)
	}
	return errKind
}

func (ld *loader) machine(rest string, value []byte) error {
	var st wire.MachineState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	ld.version = st.Version
	if rest != "" || st.Version == 0 {
		return errShape
	}
	validSettings := st.Voters == 0 || validVoters(st.Voters) && validDelay(st.ReplaceAfter) && validDelay(st.RemoveAfter)
	if f := st.Following; f != nil && (f.Group == 0 || !ascending(f.Voters)) {
		return errRange
	}
	if st.Now < 0 || st.Fences > maxFences || st.GroupFences > maxFences || st.Epoch > maxEpoch || !validSettings {
		return errRange
	}
	m := ld.m
	m.levels.agreed = max(st.FeatureLevel, firstLevel)
	m.now, m.fences, m.epoch, m.positions = st.Now, st.Fences, st.Epoch, st.Positions
	m.endings = st.Ended
	m.settings = settings{st.Voters, st.ReplaceAfter, st.RemoveAfter}
	m.keys.changes, m.keys.lockFloor, m.keys.lockFloorAt = st.Changes, st.LockFloor, st.LockFloorAt
	m.groups.created, m.groups.fences = st.Groups, st.GroupFences
	if f := st.Following; f != nil {
		m.following = &following{group: f.Group, index: f.Index, voters: f.Voters, sealed: f.Sealed}
	}
	return nil
}

func (ld *loader) member(rest string, value []byte) error {
	var st wire.MemberState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	id, ok := wire.IDFrom(st.Incarnation)
	token, tokenOK := wire.IDFrom(st.Token)
	if len(rest) != 8 || !ok || !tokenOK || len(st.Key) != 0 && len(st.Key) != publicKeySize {
		return errShape
	}
	n := binary.BigEndian.Uint64([]byte(rest))
	if ld.m.known(n) != nil {
		return errTwice
	}
	k := newMember(n)
	k.boot, k.attempt, k.incarnation, k.silent = st.Boot, st.Attempt, id, st.Silent
	k.token, k.public, k.level, k.crashed = token, string(st.Key), st.FeatureLevel, st.Crashed
	k.name, k.advertise, k.ephemeral, k.since = st.Name, st.Advertise, st.Ephemeral, st.Since
	if k.removed = st.Removed; k.removed {
		k.checks, k.dependents = nil, nil
		ld.m.former.add(k)
		return nil
	}
	ld.m.addMember(k)
	return nil
}

func (ld *loader) check(rest string, value []byte) error {
	var st wire.CheckRecord
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	if len(rest) <= 8 || rest[8:] == gossipCheck {
		return errShape
	}
	if st.Ttl != 0 && (st.Ttl < MinTTL || st.Ttl > MaxTTL) || st.Refreshed < 0 ||
		st.State < wire.CheckState_PASSING || st.State > wire.CheckState_CRITICAL {
		return errRange
	}
	c := &check{name: rest[8:], status: st.State, ttl: st.Ttl, refreshed: st.Refreshed, forClient: st.ForClient}
	ld.checks = append(ld.checks, pending[check, uint64]{of: c, state: binary.BigEndian.Uint64([]byte(rest[:8]))})
	return nil
}

func (ld *loader) incarnation(rest string, value []byte) error {
	var st wire.IncarnationState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	id, ok := wire.IDFrom([]byte(rest))
	switch {
	case !ok:
		return errShape
	case st.Ttl < MinTTL || st.Ttl > MaxTTL || st.Renewed < 0:
		return errRange
	case !st.Client && st.Until != 0, st.Client && (st.Until <= 0 || st.Until > after(st.Renewed, min(st.Ttl, MaxRegistering))):
		return errRange
	case st.Barred != 0 && st.Barred <= st.Floor:
		return errRange
	case ld.m.incarnation(id) != nil, st.Client && ld.m.clients[st.Member] != nil:
		return errTwice
	}
	ld.m.insert(&incarnation{
		id: id, member: st.Member, client: st.Client, ttl: st.Ttl, until: st.Until, renewed: st.Renewed, window: window{floor: st.Floor}, barred: st.Barred,
	})
	return nil
}

func (ld *loader) tombstone(rest string, value []byte) error {
	var st wire.EndedClientState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	id, ok := wire.IDFrom([]byte(rest))
	switch {
	case !ok:
		return errShape
	case st.Until <= 0:
		return errRange
	case ld.m.tombstones.byID[id] != nil:
		return errTwice
	}
	ld.m.tombstones.add(&tombstone{id: id, until: st.Until})
	return nil
}

func (ld *loader) session(rest string, value []byte) error {
	st := new(wire.SessionState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	id, ok := wire.IDFrom([]byte(rest))
	switch {
	case !ok:
		return errShape
	case st.Ttl != 0 && (st.Ttl < MinTTL || st.Ttl > MaxTTL), st.LockDelay < 0, st.LockDelay > MaxLockDelay,
		st.Behavior != wire.Behavior_RELEASE && st.Behavior != wire.Behavior_DELETE, len(st.Checks) > MaxSessionChecks:
		return errRange
	case st.Ended == 0 && (st.EndedAt != 0 || st.Graceful), st.Ended != 0 && len(st.Incarnation) > 0, st.EndedAt < 0:
		return errRange
	case st.Attached != 0 && (st.Ttl != 0 || st.Standalone):
		return errRange
	case st.Standalone && (len(st.Incarnation) > 0 || st.Client || st.Renewed < 0), !st.Standalone && st.Renewed != 0:
		return errRange
	case ld.m.sessions[id] != nil:
		return errTwice
	}
	s := &session{
		ended: st.Ended, endedAt: st.EndedAt, graceful: st.Graceful, recorded: st.Ended != 0,
		id: id, name: st.Name, member: st.Member, ttl: st.Ttl, lockDelay: st.LockDelay,
		behavior: st.Behavior, checks: st.Checks, createIndex: st.CreateIndex, attached: st.Attached, client: st.Client,
		standalone: st.Standalone, renewed: st.Renewed,
	}
	ld.m.sessions[id] = s
	if !s.dead() {
		ld.m.byCreation.ReplaceOrInsert(s)
	}
	ld.sessions = append(ld.sessions, pending[session, *wire.SessionState]{of: s, state: st})
	return nil
}

func (ld *loader) outcome(rest string, value []byte) error {
	st := new(wire.Reply)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	if len(rest) != 16+8 {
		return errShape
	}
	t := &wire.Ticket{Incarnation: wire.ID([]byte(rest[:16])), Seq: binary.BigEndian.Uint64([]byte(rest[16:]))}
	ld.tickets = append(ld.tickets, pending[wire.Ticket, *wire.Reply]{of: t, state: st})
	return nil
}
