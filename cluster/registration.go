package cluster

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// Registration returns this process's registration, without a TTL. It is the same one for
// as long as the process lives: the group accepts it again if it has expired.
func (m *Member) Registration() *wire.Register {
	id := m.identity
	last := len(id.Tokens) - 1
	voters := uint32(m.cfg.Voters)
	if id.Get().GetJoined() {
		voters = 0 // the group has its settings
	}
	return &wire.Register{
		Name: m.cfg.Name, Advertise: m.cfg.Advertise, Ephemeral: m.cfg.Dir == "", Voters: voters,
		Member: id.Member, Boot: id.Get().GetBoot(), Key: id.Public(), FeatureLevel: m.seams.level(),
		Tokens: id.Tokens[:last], NextToken: id.Tokens[last],
	}
}

// Registered takes the outcome of this process's registration, on the loop's goroutine.
// A process that the group has accepted is followed by those only that present its token.
func (m *Member) Registered(r *wire.Reply) {
	switch r.GetCode() {
	case wire.Code_OK:
		if m.registered {
			return
		}
		m.registered = true
		m.routine("registration", func() {
			if err := m.identity.Registered(); err != nil {
				m.fail(fmt.Errorf("disk failed: record the registration: %w", err))
			}
		})
	case wire.Code_STALE_BOOT:
		m.fail(fmt.Errorf("%w: another process has registered as this member with a copy of its directory: %s",
			ErrCorrupt, r.GetDetail()))
	}
}
