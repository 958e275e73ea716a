package transport

import (
	"fmt"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

// Reason identifies the check of a hello that failed. Its text is part of the
// protocol.
type Reason string

// The reasons for which a connection is refused.
const (
	ReasonMalformed   Reason = "malformed hello"
	ReasonProtocol    Reason = "no common protocol version"
	ReasonTLS         Reason = "TLS against plaintext"
	ReasonGroup       Reason = "another group"
	ReasonCluster     Reason = "another cluster"
	ReasonNoCluster   Reason = "no cluster yet"
	ReasonMember      Reason = "another member"
	ReasonAddress     Reason = "another address"
	ReasonSelf        Reason = "connected to itself"
	ReasonClone       Reason = "copied data directory"
	ReasonRollback    Reason = "rolled-back data directory" // its boot counter is lower than one seen
	ReasonForgot      Reason = "forgotten entries"          // which its member has acknowledged
	ReasonNotMember   Reason = "not a member"
	ReasonRemoved     Reason = "not a member any more"
	ReasonBusy        Reason = "too many connections"
	ReasonKind        Reason = "unknown kind of connection"
	ReasonNotAdmitted Reason = "not admitted"           // by Config.Admit
	ReasonNoClients   Reason = "clients are not served" // by this member, or at present
	ReasonNotClient   Reason = "not a client"           // its key or its incarnation is another process's
	ReasonNoGroup     Reason = "the group is deleted"   // that the connection of a client is for
	ReasonOther       Reason = "refused"                // by a later version, for a reason of its own
)

// RefusedError reports that one side of a handshake refused the other's hello.
type RefusedError struct {
	Member uint64 // the other side; zero: unknown
	Name   string // its, if the connection has shown it
	Addr   string // of the other side
	Here   bool   // this side refused; otherwise the other side did
	Client bool   // the other side is a client
	Reason Reason
	Detail string
}

func (e *RefusedError) Error() string {
	verb := "refused by "
	if e.Here {
		verb = "refused "
	}
	other := peerAt(e.Member, e.Addr)
	if e.Client {
		other = fmt.Sprintf("client %v at %s", wire.MemberID(e.Member), e.Addr)
	}
	return fmt.Sprintf("%s%s: %s: %s", verb, other, e.Reason, e.Detail)
}

// text is the refusal in a proof; parseRefusal reads it.
func (e *RefusedError) text() string { return string(e.Reason) + ": " + e.Detail }

func parseRefusal(member uint64, addr, text string) *RefusedError {
	e := &RefusedError{Member: member, Addr: addr, Reason: ReasonOther, Detail: text}
	reason, detail, ok := strings.Cut(text, ": ")
	switch r := Reason(reason); r {
	case ReasonMalformed, ReasonProtocol, ReasonTLS, ReasonGroup, ReasonCluster, ReasonNoCluster, ReasonMember, ReasonAddress,
		ReasonSelf, ReasonClone, ReasonRollback, ReasonForgot, ReasonNotMember, ReasonRemoved, ReasonBusy, ReasonKind, ReasonNotAdmitted,
		ReasonNoClients, ReasonNotClient, ReasonNoGroup:
		if ok {
			e.Reason, e.Detail = r, detail
		}
	}
	return e
}
