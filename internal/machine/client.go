package machine

import (
	"bytes"
	"cmp"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// A client is a process that is no member. Feature level 4 has clients. A submission that is
// marked as a client's has the powers of one; below the level the mark means nothing, as for
// builds that do not know it. So the leader drops what is marked until the group is at the
// level, and else a client would act as a member. It is enough that leaders do: only what they
// propose is applied, and a level is never lowered.

// client is what is kept of a client, as long as it is registered or has sessions. It is no
// part of the durable state: its incarnation and its sessions are.
type client struct {
	incarnation *incarnation // nil: not registered
	sessions    ordered.List[session, sessionsOfMember]
}

// tombstone is kept of a client's registration that ended before the command that registered
// it ended to be valid: a duplicate would register it again. From feature level 6 on one is kept of
// each, for a minute: late duplicates of its other commands would be applied again under a
// second registration of the key, and members may not have deleted the first one's outcomes yet.
type tombstone struct {
	id    wire.ID // of the incarnation
	until int64
	at    int // position in tombstones.byEnd
}

type tombstones struct {
	byID  map[wire.ID]*tombstone
	byEnd ordered.Heap[*tombstone]
}

func newTombstones(v *ordered.Visits) tombstones {
	compare := func(a, b *tombstone) int {
		return cmp.Or(cmp.Compare(a.until, b.until), bytes.Compare(a.id[:], b.id[:]))
	}
	return tombstones{make(map[wire.ID]*tombstone), ordered.NewHeap(v, compare, func(t *tombstone) *int { return &t.at })}
}

func (x *tombstones) add(t *tombstone) {
	x.byID[t.id] = t
	x.byEnd.Push(t)
}

// dropTombstones drops those that are not needed any more, as far as the entry may.
func (m *Machine) dropTombstones() {
	for t := m.tombstones.byEnd.First(); t != nil && t.until <= m.now && m.left > 0; t = m.tombstones.byEnd.First() {
		m.left--
		m.tombstones.byEnd.Pop()
		delete(m.tombstones.byID, t.id)
		m.dirty.drop(t.key())
	}
}

// hasClients reports whether the group is at the level of clients.
func (m *Machine) hasClients() bool { return m.levels.agreed >= wire.LevelClient }

// registerClient registers a client.
//
// A registration must not return after its end (see RegisterClient in wire.proto). One that
// expires does so at its TTL from now at the earliest, when its command is refused by its
// time. One that ends before leaves a tombstone until that time.
func (m *Machine) registerClient(id wire.ID, from submitter, floor uint64, c *wire.RegisterClient) *wire.Reply {
	if r := m.checkClient(id, from, c); r != nil {
		return r
	}
	known := m.clients[from.member]
	switch {
	case m.incarnation(id) != nil:
		return m.reply(wire.Code_OK)
	case m.gone[id] != nil || m.tombstones.byID[id] != nil:
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the registration has ended; draw a new key")
	case c.Until <= m.now:
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the registration comes too late; draw a new key")
	case c.Until > after(m.now, min(c.Ttl, MaxRegistering)):
		return m.refuse(wire.Code_INVALID, "invalid registration: it would be valid for longer than its TTL, or than a minute")
	case m.known(from.member) != nil || known != nil:
		return m.refuse(wire.Code_INVALID, "invalid registration: the client's ID is in use; draw a new key")
	case m.FreeClients() == 0:
		return m.refuse(wire.Code_BUSY, "too many clients are registered, at most 32,768; wait until some expire")
	}
	inc := &incarnation{id: id, member: from.member, client: true, ttl: c.Ttl, until: c.Until, window: window{floor: floor}}
	m.insert(inc)
	m.renewed(inc)
	return m.reply(wire.Code_OK)
}

// checkClient refuses what no client may register.
func (m *Machine) checkClient(id wire.ID, from submitter, c *wire.RegisterClient) *wire.Reply {
	switch {
	case !from.client:
		return m.refuse(wire.Code_INVALID, "invalid registration: a member cannot register as a client")
	case len(c.Key) != publicKeySize:
		return m.refuse(wire.Code_INVALID, "invalid registration: the key is not 32 bytes")
	case from.member != wire.FingerprintOf(c.Key) || id != wire.ClientIncarnation(c.Key):
		return m.refuse(wire.Code_INVALID, "invalid registration: it is of another key")
	}
	if c.Ttl > MaxClientTTL {
		return m.refuse(wire.Code_INVALID, "invalid registration: its TTL is longer than 10 minutes")
	}
	return m.checkTTL(c.Ttl)
}

// renewClients renews clients, for a member to which they are connected.
func (m *Machine) renewClients(c *wire.RenewClients) *wire.Reply {
	if len(c.Incarnations) > MaxRenewed {
		return m.refuse(wire.Code_TOO_LARGE, "too many clients are renewed at once: at most 4,096")
	}
	for _, b := range c.Incarnations {
		id, _ := wire.IDFrom(b)
		if inc := m.incarnation(id); inc != nil && inc.client {
			m.renewed(inc)
		}
	}
	return m.reply(wire.Code_OK)
}

// mayClient refuses a command that a client may not submit.
func (m *Machine) mayClient(c *wire.Command) *wire.Reply {
	switch op := c.Op.(type) {
	case *wire.Command_Register, *wire.Command_AdmitMember, *wire.Command_ReportGossip, *wire.Command_ReportProcess,
		*wire.Command_RaiseLevel, *wire.Command_RenewClients, *wire.Command_CreateGroup, *wire.Command_DropGroup,
		*wire.Command_FollowMembers, *wire.Command_SealGroup:
		return m.refuse(wire.Code_INVALID, "a client cannot submit the command; only a member can")
	case *wire.Command_SetCheck, *wire.Command_DropCheck:
		return m.refuse(wire.Code_INVALID, "a client has no checks; only a member has")
	case *wire.Command_CreateSession:
		return m.refuse(wire.Code_INVALID, "a session that no process is bound to belongs to a member; a client is none")
	case *wire.Command_RemoveMember:
		if op.RemoveMember.Member == 0 {
			return m.refuse(wire.Code_INVALID, "a client must name the member to remove: it is none itself")
		}
	}
	return nil
}

// mayDepend refuses sessions with checks to clients, which have none.
func (m *Machine) mayDepend(inc *incarnation, checks []string) *wire.Reply {
	if inc.client && len(checks) > 0 {
		return m.refuse(wire.Code_INVALID, "a client has no checks that a session could depend on")
	}
	return nil
}

// clientOf returns the record of a client, a new one if there is none.
func (m *Machine) clientOf(id uint64) *client {
	c := m.clients[id]
	if c == nil {
		c = new(client)
		m.clients[id] = c
	}
	return c
}

// forgetClient drops the record of a client that is not registered and has no sessions.
func (m *Machine) forgetClient(id uint64) {
	if c := m.clients[id]; c != nil && c.incarnation == nil && c.sessions.Len == 0 {
		delete(m.clients, id)
	}
}

// endClient undoes what insert does for a client.
func (m *Machine) endClient(inc *incarnation) {
	m.clients[inc.member].incarnation = nil
	m.forgetClient(inc.member)
	until := inc.until
	if m.levels.agreed >= wire.LevelBounds {
		until = after(m.now, MaxRegistering) // inc.until is not later
	}
	if until > m.now {
		t := &tombstone{id: inc.id, until: until}
		m.tombstones.add(t)
		m.dirty.put(t.key(), t)
	}
}

// ClientCounts reports whether the incarnation of a client counts in MaxClients: it is registered,
// or was and has a tombstone. FreeClients returns how many more may be registered. Both take the
// same short time for a state of any size.
func (m *Machine) ClientCounts(id wire.ID) bool {
	inc := m.incarnation(id)
	return inc != nil && inc.client || m.tombstones.byID[id] != nil
}

// FreeClients is explained at ClientCounts. Those that ended are counted apart once each leaves a
// tombstone: all clients may start again within a minute.
func (m *Machine) FreeClients() int {
	registered, ended := m.registry.clients, len(m.tombstones.byID)
	if m.levels.agreed < wire.LevelBounds {
		return max(0, MaxClients-registered-ended)
	}
	return max(0, MaxClients-max(registered, ended))
}

// Registration returns whose the incarnation is: a member's or a client's ID. ok is false if
// it is not registered. It takes the same short time for a state of any size.
func (m *Machine) Registration(id wire.ID) (member uint64, client, ok bool) {
	inc := m.incarnation(id)
	if inc == nil {
		return 0, false, false
	}
	return inc.member, inc.client, true
}
