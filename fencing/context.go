package fencing

import (
	"context"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave"
)

type tokensKey struct{}

// ContextWithLock returns a context in which the fence that ctx carries now
// ([conclave.FenceFromContext]) belongs to the named lock. Use it in the function that
// FencedLock.Do calls, where requests need the fences of several locks or where the client does not know
// the lock's name:
//
//	err := invoices.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
//		ctx = fencing.ContextWithLock(ctx, "invoices")
//		return ledger.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
//			ctx = fencing.ContextWithLock(ctx, "ledger")
//			...
//
// If ctx carries no fence, what uses the context returns ErrMissing, rather than send the
// request without one.
func ContextWithLock(ctx context.Context, lock string) context.Context {
	f, _ := conclave.FenceFromContext(ctx)
	return ContextWithToken(ctx, Token{lock, f})
}

// ContextWithToken returns a context that carries the token, in place of one for the same lock and beside those
// for others.
func ContextWithToken(ctx context.Context, t Token) context.Context {
	tokens := slices.DeleteFunc(slices.Clone(tokens(ctx)), func(other Token) bool { return other.Lock == t.Lock })
	return context.WithValue(ctx, tokensKey{}, append(tokens, t))
}

// TokensFromContext returns the tokens that ctx carries, the latest last. In a handler behind
// [Middleware] they are the verified ones.
func TokensFromContext(ctx context.Context) []Token { return slices.Clone(tokens(ctx)) }

func tokens(ctx context.Context) []Token {
	tokens, _ := ctx.Value(tokensKey{}).([]Token)
	return tokens
}

// FenceFromContext returns the fence that ctx carries for the lock: that of the lock's token.
// Where ctx carries no tokens it is the fence of [conclave.FenceFromContext], whose lock the
// caller has to know. It returns ErrMissing if there is none.
func FenceFromContext(ctx context.Context, lock string) (conclave.Fence, error) {
	carried := tokens(ctx)
	f, ok := find(carried, lock)
	if len(carried) == 0 {
		f, ok = conclave.FenceFromContext(ctx)
	}
	if !ok || f == 0 {
		return 0, fmt.Errorf("%w: the context has none for lock %q", ErrMissing, lock)
	}
	return f, nil
}

// Outgoing returns the value of the header for requests with ctx: all tokens that ctx carries.
// Where it carries none, the fence of [conclave.FenceFromContext] is taken to belong to the
// named lock, unless that name is empty. It returns "" if there is nothing to send, and the errors
// of [Format].
func Outgoing(ctx context.Context, lock string) (string, error) {
	carried := tokens(ctx)
	if f, ok := conclave.FenceFromContext(ctx); ok && len(carried) == 0 && lock != "" {
		carried = []Token{{lock, f}}
	}
	return Format(carried...)
}
