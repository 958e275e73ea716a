package machine

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The members of the group as facts of the log: who was admitted, with which key and at
// which address, and since when a process is silent. Raft's configuration follows these
// facts (cluster/reconcile/reconcile.go); nothing here knows who votes.

const (
	// MaxMembers bounds the members that were not removed.
	MaxMembers = 128
	// MaxUnregistered bounds those of them that were admitted and have never registered,
	// so that a stranger whom nothing keeps out cannot take all places.
	MaxUnregistered = 16
	// MaxForgettable bounds the removed members that have never registered.
	MaxForgettable = 64
	// AdmissionTTL is for how long an admitted member may take to register.
	AdmissionTTL = 10 * 60 * second

	// MinReplaceAfter is the least of the settings ReplaceAfter and RemoveAfter, besides
	// 0, which is never. A member that is declared dead is silent since MinSilence.
	MinReplaceAfter = MinSilence
	// MaxReplaceAfter is the largest.
	MaxReplaceAfter = 365 * 24 * 60 * 60 * second

	defaultReplaceAfter = 60 * second
	maxVoters           = 7
	maxAdvertise        = 260 // bytes, of an address: a DNS name and a port
)

// settings are the group's settings. No voters: none were set.
type settings struct {
	voters                    uint32
	replaceAfter, removeAfter int64
}

// GroupConfig returns the settings of the group; zero until its first process has registered.
func (m *Machine) GroupConfig() fact.GroupConfig {
	s := m.settings
	return fact.GroupConfig{Voters: s.voters, ReplaceAfter: s.replaceAfter, RemoveAfter: s.removeAfter}
}

func validVoters(n uint32) bool { return n%2 == 1 && n <= maxVoters }

func validDelay(d int64) bool { return d == 0 || d >= MinReplaceAfter && d <= MaxReplaceAfter }

// setGroupConfig replaces the settings. The result carries no state of the members: what is
// due by the new settings happens with the next entry.
func (m *Machine) setGroupConfig(c *wire.SetGroupConfig) *wire.Reply {
	switch {
	case !validVoters(c.Voters):
		return m.refuse(wire.Code_INVALID, "invalid number of voters: want 1, 3, 5 or 7")
	case !validDelay(c.ReplaceAfter) || !validDelay(c.RemoveAfter):
		return m.refuse(wire.Code_INVALID, "invalid time: want 0 (never) or 5 s to a year")
	}
	m.settings = settings{c.Voters, c.ReplaceAfter, c.RemoveAfter}
	return m.reply(wire.Code_OK)
}

// foundSettings has the first registration that states a number of voters set it.
func (m *Machine) foundSettings(voters uint32) {
	if m.settings.voters == 0 && m.following == nil && voters != 0 && validVoters(voters) {
		m.settings = settings{voters: voters, replaceAfter: defaultReplaceAfter}
	}
}

// admitMember admits a member. It is idempotent until the member registers: a process stores
// its cluster before that, and asks no more.
func (m *Machine) admitMember(c *wire.AdmitMember) *wire.Reply {
	if r := m.checkOptionalName(c.Name); r != nil {
		return r
	}
	switch {
	case c.Member == 0 || len(c.Key) != publicKeySize:
		return m.refuse(wire.Code_INVALID, "invalid admission: no member, or its key is not 32 bytes")
	case len(c.Advertise) > maxAdvertise:
		return m.refuse(wire.Code_INVALID, "invalid admission: the address is longer than 260 bytes")
	}
	k := m.known(c.Member)
	switch {
	case k != nil && k.removed:
		return m.refuse(wire.Code_REMOVED, "the member has been removed from the group")
	case k != nil && k.public != "" && k.public != string(c.Key):
		return m.refuse(wire.Code_INVALID, "the member has another key")
	case k != nil && k.isRegistered():
		return m.refuse(wire.Code_INVALID, "the member has registered before: its directory was rolled back to before its admission")
	case k == nil:
		if r := m.checkRoom(); r != nil {
			return r
		}
		k = newMember(c.Member)
		k.since = m.now
		m.addMember(k)
	}
	k.public, k.name, k.advertise, k.ephemeral = string(c.Key), c.Name, c.Advertise, c.Ephemeral
	m.memberChanged(k)
	return m.reply(wire.Code_OK)
}

// checkRoom refuses a member beyond the limits.
func (m *Machine) checkRoom() *wire.Reply {
	unregistered, n := 0, 0
	for _, k := range m.members { // order: two sums
		m.visits.Count()
		n++
		if !k.isRegistered() {
			unregistered++
		}
	}
	switch {
	case n >= MaxMembers:
		return m.refuse(wire.Code_BUSY, "the group has too many members, at most 128: remove those that do not return")
	case unregistered >= MaxUnregistered:
		return m.refuse(wire.Code_BUSY, "too many members were admitted and have not started yet, at most 16")
	}
	return nil
}

// isRegistered reports whether a process of the member has registered.
func (k *member) isRegistered() bool { return !k.incarnation.IsZero() }

// memberChanged records a change of a member.
func (m *Machine) memberChanged(k *member) {
	m.roster, m.registered, m.listed = nil, nil, true
	m.dirty.put(k.key(), k)
}

// silence records that the failure detector declares a member's process dead, or alive. A
// process that is declared dead has not renewed for MinSilence.
func (m *Machine) silence(k *member, silent bool) {
	k.silent, k.since = silent, 0
	if silent {
		k.since = max(0, m.now-MinSilence)
	}
	m.memberChanged(k)
}

// Members returns the members that were not removed, by ID. The slice is never changed.
func (m *Machine) Members() []fact.MemberRecord {
	if m.roster == nil {
		m.roster = make([]fact.MemberRecord, 0, len(m.members))
		for _, id := range slices.Sorted(maps.Keys(m.members)) {
			m.visits.Count()
			k := m.members[id]
			m.roster = append(m.roster, fact.MemberRecord{
				ID: id, Name: k.name, Advertise: k.advertise, Key: []byte(k.public),
				Ephemeral: k.ephemeral, Registered: k.isRegistered(), Level: max(k.level, firstLevel), Silent: k.silent, Since: k.since,
			})
		}
	}
	return m.roster
}

// Directory returns the further groups. It is never changed.
func (m *Machine) Directory() *fact.Directory {
	if m.groups.directory == nil {
		d := &fact.Directory{Created: m.groups.created}
		for _, number := range slices.Sorted(maps.Keys(m.groups.byNumber)) {
			m.visits.Count()
			d.Groups = append(d.Groups, m.groups.byNumber[number].GroupRecord)
		}
		m.groups.directory = d
	}
	return m.groups.directory
}

// Following returns what a further group has of the default one, nil in the default group. It is never changed.
func (m *Machine) Following() *fact.Following {
	f := m.following
	if f == nil {
		return nil
	}
	if f.view == nil {
		f.view = &fact.Following{Group: f.group, Index: f.index, Voters: f.voters, Sealed: f.sealed}
		if f.sealed {
			f.view.Fences = m.fences
		}
	}
	return f.view
}
