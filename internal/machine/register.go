package machine

import (
	"cmp"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// register registers an incarnation in place of the member's previous one. A refused
// registration changes nothing: that of a copied directory must not end the sessions of
// the original.
func (m *Machine) register(id wire.ID, member, floor uint64, c *wire.Register) *wire.Reply {
	if r := m.checkRegistration(id, member, c); r != nil {
		return r
	}
	if m.incarnation(id) != nil {
		return m.reply(wire.Code_OK)
	}
	if m.gone[id] != nil || m.tombstones.byID[id] != nil && m.levels.agreed >= wire.LevelBounds {
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the incarnation has ended; draw a new one")
	}
	if x := (grouping{m}); x.isFurther() {
		if r := x.mayRegister(c); r != nil {
			return r
		}
	}
	known := m.known(c.Member)
	var old *incarnation
	if known != nil {
		if r := m.checkSuccession(known, id, c); r != nil {
			return r
		}
		old = m.process(known)
	} else if !presents(c, wire.ID{}) {
		return m.refuse(wire.Code_STALE_BOOT, "the group does not know the member, which has registered before")
	}
	if max(c.FeatureLevel, firstLevel) < m.levels.agreed {
		return m.refuse(wire.Code_LEVEL, "the group's feature level is higher than this build supports")
	}
	if old == nil && m.registry.members() >= MaxIncarnations {
		return m.refuse(wire.Code_BUSY, "too many incarnations are registered; wait until some expire")
	}
	if old != nil {
		m.drop(old, fact.Superseded)
	}
	inc := &incarnation{id: id, member: c.Member, ttl: c.Ttl, window: window{floor: floor}}
	m.insert(inc)
	m.renewed(inc)
	m.remember(c, id)
	return m.reply(wire.Code_OK)
}

// checkRegistration refuses what no member may register.
func (m *Machine) checkRegistration(id wire.ID, member uint64, c *wire.Register) *wire.Reply {
	if r := m.checkTTL(c.Ttl); r != nil {
		return r
	}
	token, ok := wire.IDFrom(c.NextToken)
	switch {
	case c.Member == 0 || id.IsZero():
		return m.refuse(wire.Code_INVALID, "invalid registration: the member or the incarnation is zero")
	case c.Member != member:
		return m.refuse(wire.Code_INVALID, "invalid registration: it is another member's")
	case !ok || token.IsZero():
		return m.refuse(wire.Code_INVALID, "invalid registration: the token is not 16 bytes, or zero")
	case len(c.Name) > MaxName || len(c.Advertise) > maxAdvertise:
		return m.refuse(wire.Code_INVALID, "invalid registration: the name or the address is too long")
	case len(c.Key) != 0 && len(c.Key) != publicKeySize:
		return m.refuse(wire.Code_INVALID, "invalid registration: the key is not 32 bytes")
	}
	return nil
}

// checkSuccession refuses a registration that does not follow the member's last one. The
// boot counter detects a directory that is older than the start that registered last, the
// token also one that another copy has registered with.
func (m *Machine) checkSuccession(known *member, id wire.ID, c *wire.Register) *wire.Reply {
	switch {
	case known.removed:
		return m.refuse(wire.Code_REMOVED, "the member has been removed from the group")
	case known.incarnation == id:
		// Registered once and expired. It must not return: without its window,
		// late duplicates of its commands would be applied again.
		return m.refuse(wire.Code_UNKNOWN_INCARNATION, "the registration has expired; draw a new incarnation")
	case !known.precedes(c):
		return m.refuse(wire.Code_STALE_BOOT, "the member has registered with this boot and attempt or later ones")
	case m.following == nil && !presents(c, known.token):
		return m.refuse(wire.Code_STALE_BOOT, "the succession token is not that of the member's last registration")
	case known.public != "" && known.public != string(c.Key):
		return m.refuse(wire.Code_INVALID, "the member has another key")
	}
	return nil
}

// publicKeySize is that of Ed25519.
const publicKeySize = 32

// presents reports whether c presents the token of the last registration. A process that
// registers again presents its own.
func presents(c *wire.Register, last wire.ID) bool {
	is := func(token []byte) bool {
		id, _ := wire.IDFrom(token) // of another length: zero, as if it had none
		return id == last
	}
	return is(c.NextToken) || slices.ContainsFunc(c.Tokens, is) || len(c.Tokens) == 0 && last.IsZero()
}

// precedes reports whether c is later than the last registration.
func (k *member) precedes(c *wire.Register) bool {
	return cmp.Or(cmp.Compare(c.Boot, k.boot), cmp.Compare(c.Attempt, k.attempt)) > 0
}

// remember records the member's latest registration, which also proves that it is
// alive, whatever the failure detector reported of an earlier start.
func (m *Machine) remember(c *wire.Register, id wire.ID) {
	k := m.members[c.Member]
	if k == nil {
		k = newMember(c.Member)
		m.addMember(k)
	}
	k.boot, k.attempt, k.incarnation = c.Boot, c.Attempt, id
	k.name, k.advertise, k.ephemeral = c.Name, c.Advertise, c.Ephemeral
	k.token, _ = wire.IDFrom(c.NextToken)
	k.public, k.level, k.crashed = string(c.Key), c.FeatureLevel, false
	k.listBuiltIn(m)
	m.silence(k, false)
	m.foundSettings(c.Voters)
}

// Registered returns the incarnation of the last registered process of each member that was not
// removed. The
// map is never changed.
func (m *Machine) Registered() map[uint64]wire.ID {
	if m.registered == nil {
		m.registered = make(map[uint64]wire.ID, len(m.members))
		for id, k := range m.members { // order: of a map
			m.visits.Count()
			if k.isRegistered() {
				m.registered[id] = k.incarnation
			}
		}
	}
	return m.registered
}
