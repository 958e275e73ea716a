package identity

import "github.com/conclave-go/conclave/internal/wire"

// The succession of a member's processes. Each registration stores a random token in the
// group, and must present that of the registration before. So of two directories of one
// member, the group refuses the one that has not registered last.
//
// A process adds its token to the record on disk before it sends its registration, and
// drops the others once it knows that the group has accepted it. One that stops between
// leaves both, and the next presents both: it need not know whether the registration was
// applied. An empty token is that of a member which has never registered.

// MaxTokens bounds the tokens on disk: so many processes in a row may stop before they
// know the outcome of their registration. Later ones register with the last token again.
const MaxTokens = 16

// addToken adds this process's token to a record.
func addToken(r *wire.Identity) {
	if len(r.Tokens) == 0 {
		r.Tokens = [][]byte{nil}
	}
	if len(r.Tokens) < MaxTokens {
		token := RandomID()
		r.Tokens = append(r.Tokens, token[:])
	}
}

// Registered drops the tokens before this process's.
func (id *Identity) Registered() error {
	return id.Save(func(r *wire.Identity) { r.Tokens = id.Tokens[len(id.Tokens)-1:] })
}
