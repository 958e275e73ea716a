package reference

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-go/conclave/internal/wire"
)

// Clients: processes that are no members.

// as is as whom a submission is applied.
type as struct {
	id     uint64
	client bool
}

// ended is a client that ended: until no duplicate can register it again and, from level 6 on, for a minute.
type ended struct {
	id    wire.ID
	until int64
}

// clients tells whether the group is at the level of clients.
func (r *Model) clients() bool { return r.Level >= wire.LevelClient }

func (r *Model) as(s *wire.Submission) as { return as{s.Member, r.clients() && s.Client} }

// addedAt returns the level that has added an operation to commands.
func addedAt(number protowire.Number) uint32 {
	switch {
	case number >= 39:
		return 11
	case number >= 38:
		return 10
	case number >= 34:
		return 9
	case number >= 32:
		return 8
	case number >= 27:
		return 7
	case number >= 25:
		return 5
	case number >= 23:
		return 4
	}
	return 0
}

// readable returns a command as a build reads it that knows nothing above the group's level.
func (r *Model) readable(data []byte) []byte {
	var fields [][]byte
	for rest := data; len(rest) > 0; {
		number, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return data
		}
		if r.Level >= addedAt(number) {
			fields = append(fields, rest[:size])
		}
		rest = rest[size:]
	}
	return slices.Concat(fields...)
}

// count counts the registered incarnations of clients, or of members.
func (r *Model) count(clients bool) (n int) {
	for _, inc := range r.Incarnations {
		if inc.Client == clients {
			n++
		}
	}
	return n
}

// running returns the registered process of a member, or nil.
func (r *Model) running(m *Member) *Incarnation {
	if inc := r.Incarnation(m.last); inc != nil && !inc.Client {
		return inc
	}
	return nil
}

// full tells whether a process has as many sessions as it may, bound or standalone ones.
func (r *Model) full(inc *Incarnation, alone bool) bool {
	n := 0
	for _, s := range r.Sessions {
		if s.Member == inc.Member && s.Client == inc.Client && (s.Standalone == alone || !r.bounded()) {
			n++
		}
	}
	if inc.Client {
		return n >= MaxClientSessions
	}
	return n >= MaxSessions
}

func (r *Model) registerClient(id wire.ID, as as, floor uint64, c *wire.RegisterClient) *wire.Reply {
	if !as.client || len(c.Key) != ed25519.PublicKeySize || as.id != wire.FingerprintOf(c.Key) || id != wire.ClientIncarnation(c.Key) {
		return answer(wire.Code_INVALID)
	}
	if c.Ttl < MinTTL || c.Ttl > MaxClientTTL {
		return answer(wire.Code_INVALID)
	}
	if r.Incarnation(id) != nil {
		return answer(wire.Code_OK)
	}
	if r.retired(id) || len(r.Tickets(id)) > 0 || c.Until <= r.Now {
		return answer(wire.Code_UNKNOWN_INCARNATION)
	}
	if c.Until > later(r.Now, c.Ttl) || c.Until > later(r.Now, MaxRegistering) || r.Member(as.id) != nil {
		return answer(wire.Code_INVALID)
	}
	if slices.ContainsFunc(r.Incarnations, func(i Incarnation) bool { return i.Client && i.Member == as.id }) ||
		slices.ContainsFunc(r.Sessions, func(s *Session) bool { return s.Client && s.Member == as.id }) {
		return answer(wire.Code_INVALID)
	}
	if r.crowded() {
		return answer(wire.Code_BUSY)
	}
	r.Incarnations = append(r.Incarnations, Incarnation{ID: id, Member: as.id, Client: true, until: c.Until, ttl: c.Ttl, renewed: r.Now, Floor: floor})
	return answer(wire.Code_OK)
}

// crowded reports whether there are as many clients as there may be.
func (r *Model) crowded() bool {
	if r.Level >= wire.LevelBounds {
		return max(r.count(true), len(r.past)) >= MaxClients
	}
	return r.count(true)+len(r.past) >= MaxClients
}

// retire notes that a client has ended, until its key may be used again.
func (r *Model) retire(id wire.ID, until int64) {
	if r.Level >= wire.LevelBounds {
		until = later(r.Now, MaxRegistering)
	}
	if until > r.Now {
		r.past = append(r.past, ended{id, until})
	}
}

// retired reports whether the end of a client of that incarnation is remembered.
func (r *Model) retired(id wire.ID) bool {
	return slices.ContainsFunc(r.past, func(e ended) bool { return e.id == id })
}

func (r *Model) renewClients(c *wire.RenewClients) *wire.Reply {
	if len(c.Incarnations) > MaxRenewed {
		return answer(wire.Code_TOO_LARGE)
	}
	for i := range r.Incarnations {
		inc := &r.Incarnations[i]
		named := func(id []byte) bool { return string(id) == string(inc.ID[:]) }
		if inc.Client && slices.ContainsFunc(c.Incarnations, named) {
			inc.renewed = r.Now
		}
	}
	return answer(wire.Code_OK)
}

// forbidden tells whether a client may not submit the command.
func forbidden(c *wire.Command) bool {
	return c.GetRegister() != nil || c.GetAdmitMember() != nil || c.GetReportGossip() != nil || c.GetReportProcess() != nil || c.GetRaiseLevel() != nil ||
		c.GetCreateGroup() != nil || c.GetDropGroup() != nil || c.GetFollowMembers() != nil || c.GetSealGroup() != nil ||
		c.GetRenewClients() != nil || c.GetCreateSession() != nil || c.GetSetCheck() != nil || c.GetDropCheck() != nil ||
		c.GetRemoveMember() != nil && c.GetRemoveMember().Member == 0
}

// forgetPast forgets the clients whose keys may be used again, the earliest first.
func (r *Model) forgetPast() {
	slices.SortFunc(r.past, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.until, b.until), bytes.Compare(a.id[:], b.id[:]))
	})
	for len(r.past) > 0 && r.past[0].until <= r.Now && r.quota > 0 {
		r.past = r.past[1:]
		r.quota--
	}
}

// Past counts the clients whose end is remembered.
func (r *Model) Past() int { return len(r.past) }

// boundTo returns the process that a live session is bound to; zero: none.
func (r *Model) boundTo(session wire.ID) wire.ID {
	if s := r.session(session[:]); s != nil {
		return s.Incarnation
	}
	return wire.ID{}
}
