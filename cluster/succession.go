package cluster

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// The succession of a member's processes. Each registration stores a random token in the
// group, and must present that of the registration before. So of two directories of one
// member, the group refuses the one that has not registered last.
//
// A process adds its token to the record on disk before it sends its registration, and
// drops the others once it knows that the group has accepted it. One that stops between
// leaves both, and the next presents both: it need not know whether the registration was
// applied. An empty token is that of a member which has never registered.

// maxTokens bounds the tokens on disk: so many processes in a row may stop before they
// know the outcome of their registration. Later ones register with the last token again.
const maxTokens = 16

// addToken adds this process's token to a record.
func addToken(r *wire.Identity) {
	if len(r.Tokens) == 0 {
		r.Tokens = [][]byte{nil}
	}
	if len(r.Tokens) < maxTokens {
		token := randomID()
		r.Tokens = append(r.Tokens, token[:])
	}
}

// Registration returns this process's registration, without a TTL. It is the same one for
// as long as the process lives: the group accepts it again if it has expired.
func (m *Member) Registration() *wire.Register {
	id := m.identity
	last := len(id.tokens) - 1
	voters := uint32(m.cfg.Voters)
	if id.get().GetJoined() {
		voters = 0 // the group has its settings
	}
	return &wire.Register{
		Name: m.cfg.Name, Advertise: m.cfg.Advertise, Ephemeral: m.cfg.Dir == "", Voters: voters,
		Member: id.member, Boot: id.get().GetBoot(), Key: id.public(), FeatureLevel: m.seams.level(),
		Tokens: id.tokens[:last], NextToken: id.tokens[last],
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
			if err := m.identity.registered(); err != nil {
				m.fail(fmt.Errorf("disk failed: record the registration: %w", err))
			}
		})
	case wire.Code_STALE_BOOT:
		m.fail(fmt.Errorf("%w: another process has registered as this member with a copy of its directory: %s",
			ErrCorrupt, r.GetDetail()))
	}
}

// registered drops the tokens before this process's.
func (id *identity) registered() error {
	return id.save(func(r *wire.Identity) { r.Tokens = id.tokens[len(id.tokens)-1:] })
}
