package roster

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Has reports whether the group has a member.
func (s *Snapshot) Has(id uint64) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return m.ID == id })
}

// HasAny reports whether one of the members is among the removed ones.
func (s *Snapshot) HasAny(removed []uint64) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return core.Includes(removed, m.ID) })
}

// Peer returns the record of a member; nil: none.
func (s *Snapshot) Peer(id uint64) *wire.Peer {
	if i := slices.IndexFunc(s.Peers, func(p *wire.Peer) bool { return p.GetMember() == id }); i >= 0 {
		return s.Peers[i]
	}
	return nil
}

// At returns the record of a member of the group that advertises addr; nil: none.
func (s *Snapshot) At(addr string) *wire.Peer {
	for _, p := range s.Peers {
		if p.GetAdvertise() == addr && s.Has(p.GetMember()) {
			return p
		}
	}
	return nil
}

// Unconnected returns for how long there has been no connection from the member, since this process started at most; 0: there
// is one, or nothing is known. One to it is another thing.
func (s *Snapshot) Unconnected(id uint64) time.Duration {
	for _, m := range s.Members {
		if m.ID == id && !m.connected && !m.unconnected.IsZero() {
			return time.Since(m.unconnected)
		}
	}
	return 0
}
