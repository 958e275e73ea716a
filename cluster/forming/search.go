package forming

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// The search for founders: a process that belongs to no group asks the addresses that it
// knows, each with a FORM connection of its own. The answer has the listener's settings
// and the addresses that it knows; the request has the sender's, so that the listener
// asks back. A name in Config.Join is looked up again and again, and each of its addresses
// is asked. Gossip starts when the group exists, and is for its members only.

const (
	// askTimeout bounds a request for candidates.
	askTimeout = 3 * time.Second
	// maxSuggestions bounds the candidates of an answer.
	maxSuggestions = 64
)

// search asks addresses until ctx is done.
func (f *Former) search(ctx context.Context) {
	for {
		addrs, again := f.candidates.due(time.Now())
		for _, addr := range addrs {
			f.cfg.Routine("search", func() { f.ask(ctx, addr) })
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-f.candidates.news:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// ask asks the process at an address for its settings and its candidates, or looks up the
// addresses of a name. An address that is not configured has been heard from a process, as
// what that or a third one advertises.
func (f *Former) ask(ctx context.Context, addr string) {
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	to, name := f.candidates.target(addr)
	if name {
		f.lookUp(bounded, addr)
		return
	}
	reply, err := f.cfg.Port.Form(bounded, to, &wire.FormRequest{Candidate: f.cfg.Meta()})
	found := reply.GetCandidate()
	if err == nil {
		err = checkCandidate(found, reply.GetMember(), found.GetKey())
	}
	var refused *transport.RefusedError
	switch now := time.Now(); {
	case err == nil:
		f.candidates.answered(addr, found, now)
		for _, other := range reply.GetCandidates()[:min(maxSuggestions, len(reply.GetCandidates()))] {
			f.candidates.hear(other.GetAdvertise(), reply.GetMember())
		}
	case errors.As(err, &refused) && refused.Reason == transport.ReasonSelf:
		f.candidates.answered(addr, nil, now)
	case ctx.Err() != nil: // the search is over
		f.candidates.abandoned(addr)
	default:
		f.candidates.failed(addr, err, now)
		f.failures.Log(f.cfg.Logger, addr, err)
	}
}

// lookUp looks up the addresses of a name in Config.Join.
func (f *Former) lookUp(ctx context.Context, name string) {
	targets, err := f.cfg.Port.Resolve(ctx, name)
	if errors.Is(ctx.Err(), context.Canceled) { // the search is over
		f.candidates.abandoned(name)
		return
	}
	f.candidates.resolved(name, targets, err, time.Now())
}

// checkCandidate checks what a process states about itself against the member and the key
// that its connection has proved.
func checkCandidate(meta *wire.GossipMeta, member uint64, key ed25519.PublicKey) error {
	switch {
	case meta.GetVersion() == 0 || meta.GetVersion() > wire.GossipVersion:
		return fmt.Errorf("member %v describes itself in version %d, want %d: upgrade the older one",
			wire.MemberID(member), meta.GetVersion(), wire.GossipVersion)
	case meta.GetMember() != member || !key.Equal(ed25519.PublicKey(meta.GetKey())):
		return fmt.Errorf("member %v states that it is member %v", wire.MemberID(member), wire.MemberID(meta.GetMember()))
	case len(key) != ed25519.PublicKeySize || wire.FingerprintOf(key) != member:
		return fmt.Errorf("the key of member %v is that of member %v", wire.MemberID(member), wire.MemberID(wire.FingerprintOf(key)))
	}
	return nil
}

// introduce returns the answer to a request: this member, and the processes that it has
// found itself. It notes the sender's address, and that process counts once this member
// has asked it there.
func (f *Former) introduce(sender *wire.GossipMeta) *wire.FormReply {
	reply := &wire.FormReply{Member: f.cfg.Identity.Member, Candidate: f.cfg.Meta()}
	if !f.cfg.Identity.Cluster().IsZero() {
		return reply
	}
	f.candidates.hear(sender.GetAdvertise(), sender.GetMember())
	for _, found := range f.candidates.processes() {
		if found.GetMember() != sender.GetMember() && len(reply.Candidates) < maxSuggestions {
			reply.Candidates = append(reply.Candidates, found)
		}
	}
	return reply
}
