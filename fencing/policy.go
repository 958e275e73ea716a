package fencing

import (
	"context"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave"
)

// Guard decides on fences, and remembers the largest for each lock. *[conclave.Guard] is one that
// remembers in memory, *[SQLGuard] one that remembers in a database.
type Guard interface {
	// Check returns an error that wraps conclave.ErrStaleFence, and should wrap a
	// *conclave.StaleFenceError, if it has accepted a larger fence for the lock.
	Check(lock string, f conclave.Fence) error
}

// ContextGuard is a Guard that may block. Where a guard is one, CheckContext is called instead of Check.
type ContextGuard interface {
	Guard
	CheckContext(ctx context.Context, lock string, f conclave.Fence) error
}

// Policy decides on the tokens of a request, however the request arrived. [Middleware] applies it to
// HTTP. Its fields must not be changed while it is in use.
type Policy struct {
	// Guard decides. Without one no token is accepted: conclave.ErrInvalid.
	Guard Guard
	// Required refuses requests without a token, with ErrMissing. Default: they are accepted, and
	// their context carries no fence.
	Required bool
}

// Verify checks the tokens that the values of a header have for the given locks, and ignores
// those for other locks. It returns a context with the verified tokens and no other fence; if it is
// one token, its fence is also that of [conclave.FenceFromContext]. A fence that ctx carried before,
// which is the server's own, is replaced, if need be by 0. If Required is set, each of the locks needs
// a token.
//
// It returns ErrMalformed, ErrMissing, or the guard's error. Every fence before the refused one has been
// accepted by the guard, which is harmless: it was granted.
func (p Policy) Verify(ctx context.Context, values []string, locks ...string) (context.Context, error) {
	presented, err := Parse(values)
	if err != nil {
		return ctx, err
	}
	var relevant []Token
	for _, lock := range locks {
		f, ok := find(presented, lock)
		_, known := find(relevant, lock)
		switch {
		case ok && !known:
			relevant = append(relevant, Token{lock, f})
		case !ok && p.Required:
			return ctx, &conclave.Error{Op: "check", Name: lock, Err: ErrMissing}
		}
	}
	return p.check(ctx, relevant)
}

// VerifyAll is Verify for all locks that the request names. It fits guards for which a
// client's choice of locks does not matter: what follows must take the fence for the lock in question
// from the context, with [FenceFromContext] of this package or with [SQL.Tx]. A *conclave.Guard
// remembers each name that a client sends.
func (p Policy) VerifyAll(ctx context.Context, values []string) (context.Context, error) {
	presented, err := Parse(values)
	if err == nil && p.Required && len(presented) == 0 {
		err = fmt.Errorf("conclave: check: %w", ErrMissing)
	}
	if err != nil {
		return ctx, err
	}
	return p.check(ctx, presented)
}

func (p Policy) check(ctx context.Context, tokens []Token) (context.Context, error) {
	if p.Guard == nil && len(tokens) > 0 {
		return ctx, fmt.Errorf("conclave: check: %w policy: no guard: set Policy.Guard", conclave.ErrInvalid)
	}
	for _, t := range tokens {
		var err error
		if g, ok := p.Guard.(ContextGuard); ok {
			err = g.CheckContext(ctx, t.Lock, t.Fence)
		} else {
			err = p.Guard.Check(t.Lock, t.Fence)
		}
		if err != nil {
			return ctx, &refusal{t, err}
		}
	}
	verified := context.WithValue(ctx, tokensKey{}, slices.Clip(tokens))
	if len(tokens) == 1 {
		return conclave.ContextWithFence(verified, tokens[0].Fence), nil
	}
	if _, own := conclave.FenceFromContext(ctx); own {
		// The server's own, where it runs in an Election.Run: a client must not act under it. What
		// takes 0 for a fence is refused.
		verified = conclave.ContextWithFence(verified, 0)
	}
	return verified, nil
}

// refusal is the guard's error with the token that it is about.
type refusal struct {
	token Token
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }
