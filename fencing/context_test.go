package fencing_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

func TestOutgoing_TakesTokensBeforeTheDefaultLock(t *testing.T) {
	none := t.Context()
	one := conclave.ContextWithFence(none, 7)
	bound := fencing.ContextWithLock(one, "a")
	both := fencing.ContextWithLock(conclave.ContextWithFence(bound, 1<<48|9), "b/c, d")
	for _, c := range []struct {
		name string
		ctx  context.Context
		lock string
		want string
		err  error
	}{
		{"nothing", none, "x", "", nil},
		{"a fence without a name", one, "", "", nil},
		{"the default lock", one, "x", "x=7", nil},
		{"a lock of its own", bound, "x", "a=7", nil},
		{"locks within locks", both, "", "a=7, b/c%2C%20d=1:9", nil},
		{"a later fence of the same lock", fencing.ContextWithToken(both, fencing.Token{Lock: "a", Fence: 10}), "", "b/c%2C%20d=1:9, a=10", nil},
		{"a lock without a fence", fencing.ContextWithLock(none, "a"), "", "", fencing.ErrMissing},
		{"an invalid default lock", one, "\xff", "", conclave.ErrInvalid},
	} {
		if got, err := fencing.Outgoing(c.ctx, c.lock); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestFenceFromContext_NeverTakesTheFenceOfAnotherLock(t *testing.T) {
	one := conclave.ContextWithFence(t.Context(), 7)
	if f, err := fencing.FenceFromContext(one, "a"); f != 7 || err != nil {
		t.Errorf("the only fence: %v, %v", f, err)
	}
	bound := fencing.ContextWithLock(one, "a")
	if f, err := fencing.FenceFromContext(bound, "a"); f != 7 || err != nil {
		t.Errorf("its lock: %v, %v", f, err)
	}
	for name, ctx := range map[string]context.Context{"another lock": bound, "none": t.Context(), "fence 0": conclave.ContextWithFence(t.Context(), 0)} {
		if f, err := fencing.FenceFromContext(ctx, "b"); f != 0 || !errors.Is(err, fencing.ErrMissing) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

func TestContextWithToken_LeavesTheParentAlone(t *testing.T) {
	parent := fencing.ContextWithToken(t.Context(), fencing.Token{Lock: "a", Fence: 1})
	parent = fencing.ContextWithToken(parent, fencing.Token{Lock: "b", Fence: 2})
	left := fencing.ContextWithToken(parent, fencing.Token{Lock: "left", Fence: 3})
	right := fencing.ContextWithToken(parent, fencing.Token{Lock: "a", Fence: 4})
	fencing.TokensFromContext(parent)[0].Fence = 99
	for name, c := range map[string]struct {
		ctx  context.Context
		want []fencing.Token
	}{
		"parent": {parent, []fencing.Token{{"a", 1}, {"b", 2}}},
		"left":   {left, []fencing.Token{{"a", 1}, {"b", 2}, {"left", 3}}},
		"right":  {right, []fencing.Token{{"b", 2}, {"a", 4}}},
	} {
		if got := fencing.TokensFromContext(c.ctx); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
