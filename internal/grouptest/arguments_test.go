package grouptest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// badTexts are what no name can be, and no prefix of one, with the error that says so.
func badTexts() map[string]error {
	return map[string]error{
		"k\xc3":                  conclave.ErrInvalid, // ends within a character
		"\xff":                   conclave.ErrInvalid,
		"\xed\xa0\x80":           conclave.ErrInvalid, // half of a surrogate pair
		"a\x00b":                 conclave.ErrInvalid,
		strings.Repeat("k", 513): conclave.ErrTooLarge,
		strings.Repeat("é", 257): conclave.ErrTooLarge,
	}
}

// badCall is a call with an argument that it must refuse.
type badCall struct {
	name string
	want error
	do   func(ctx context.Context, a Access) error
}

// first is the error with which a sequence begins.
func first[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		return err
	}
	return errors.New("the sequence has ended without an error")
}

// badPrefixes are the calls with a prefix, or another text that names are compared with.
func badPrefixes(text string, want error) []badCall {
	call := func(name string, do func(context.Context, Access) error) badCall { return badCall{name, want, do} }
	return []badCall{
		call("List", func(ctx context.Context, a Access) error { _, err := a.KV().List(ctx, text); return err }),
		call("List, stale", func(ctx context.Context, a Access) error {
			_, err := a.KV().List(ctx, text, conclave.Stale())
			return err
		}),
		call("Keys", func(ctx context.Context, a Access) error { _, err := a.KV().Keys(ctx, text, "/"); return err }),
		call("Keys, separator", func(ctx context.Context, a Access) error { _, err := a.KV().Keys(ctx, "", text); return err }),
		call("Watch", func(ctx context.Context, a Access) error { return first(a.KV().Watch(ctx, text, 0)) }),
		call("DeletePrefix", func(ctx context.Context, a Access) error { return a.KV().DeletePrefix(ctx, text) }),
		call("Locks", func(ctx context.Context, a Access) error { return first(a.Locks(ctx, text)) }),
		call("Locks, after", func(ctx context.Context, a Access) error { return first(a.Locks(ctx, "", conclave.After(text))) }),
		call("Semaphores", func(ctx context.Context, a Access) error { return first(a.Semaphores(ctx, text)) }),
		call("Semaphores, after", func(ctx context.Context, a Access) error { return first(a.Semaphores(ctx, "", conclave.After(text))) }),
		call("Elections", func(ctx context.Context, a Access) error { return first(a.Elections(ctx, text)) }),
		call("Elections, after", func(ctx context.Context, a Access) error { return first(a.Elections(ctx, "", conclave.After(text))) }),
		call("Checks, after", func(ctx context.Context, a Access) error {
			return first(a.Checks(ctx, conclave.After(conclave.CheckInfo{Name: text})))
		}),
	}
}

// badNames are the calls with a name.
func badNames(name string, want error) []badCall {
	call := func(what string, do func(context.Context, Access) error) badCall { return badCall{what, want, do} }
	session := conclave.SessionID{1}
	return []badCall{
		call("Lock", func(ctx context.Context, a Access) error { _, err := a.FencedLock(name).Lock(ctx); return err }),
		call("TryLock", func(ctx context.Context, a Access) error { _, err := a.FencedLock(name).TryLock(ctx); return err }),
		call("Unlock", func(ctx context.Context, a Access) error { return a.FencedLock(name).Unlock(ctx) }),
		call("Fence", func(_ context.Context, a Access) error { _, err := a.FencedLock(name).Fence(); return err }),
		call("Info", func(ctx context.Context, a Access) error { _, err := a.FencedLock(name).Info(ctx); return err }),
		call("Explain", func(ctx context.Context, a Access) error { _, err := a.Explain(ctx, name); return err }),
		call("Acquire", func(ctx context.Context, a Access) error { _, err := a.Semaphore(name, 1).Acquire(ctx, 1); return err }),
		call("Resize", func(ctx context.Context, a Access) error { return a.Semaphore(name, 1).Resize(ctx, 2) }),
		call("semaphore's Info", func(ctx context.Context, a Access) error { _, err := a.Semaphore(name, 1).Info(ctx); return err }),
		call("Campaign", func(ctx context.Context, a Access) error { _, err := a.Election(name).Campaign(ctx, nil); return err }),
		call("Proclaim", func(ctx context.Context, a Access) error { return a.Election(name).Proclaim(ctx, nil) }),
		call("Resign", func(ctx context.Context, a Access) error { return a.Election(name).Resign(ctx) }),
		call("Leader", func(ctx context.Context, a Access) error { _, err := a.Election(name).Leader(ctx); return err }),
		call("Observe", func(ctx context.Context, a Access) error { return first(a.Election(name).Observe(ctx)) }),
		call("Get", func(ctx context.Context, a Access) error { _, err := a.KV().Get(ctx, name); return err }),
		call("Put", func(ctx context.Context, a Access) error { _, err := a.KV().Put(ctx, name, nil); return err }),
		call("PutFenced", func(ctx context.Context, a Access) error { _, err := a.KV().PutFenced(ctx, name, nil, 1); return err }),
		call("CompareAndSwap", func(ctx context.Context, a Access) error {
			_, _, err := a.KV().CompareAndSwap(ctx, name, 0, nil)
			return err
		}),
		call("Delete", func(ctx context.Context, a Access) error { return a.KV().Delete(ctx, name) }),
		call("CompareAndDelete", func(ctx context.Context, a Access) error { _, err := a.KV().CompareAndDelete(ctx, name, 1); return err }),
		call("key's Acquire", func(ctx context.Context, a Access) error {
			_, err := a.KV().Acquire(ctx, name, nil, session)
			return err
		}),
		call("key's Release", func(ctx context.Context, a Access) error {
			_, err := a.KV().Release(ctx, name, nil, session)
			return err
		}),
		call("Txn", func(ctx context.Context, a Access) error {
			_, err := a.KV().Txn(ctx, conclave.OpPut("k", nil), conclave.OpExpect(name, 0))
			return err
		}),
		call("CheckSequencer", func(ctx context.Context, a Access) error {
			return a.CheckSequencer(ctx, conclave.Sequencer{Key: name, LockIndex: 1, Session: session})
		}),
	}
}

// badValues are the calls with another argument that is refused.
func badValues() []badCall {
	call := func(name string, want error, do func(context.Context, Access) error) badCall {
		return badCall{name, want, do}
	}
	session := func(cfg conclave.SessionConfig) func(context.Context, Access) error {
		return func(ctx context.Context, a Access) error { _, err := a.NewSession(ctx, &cfg); return err }
	}
	lock := func(o conclave.LockOption) func(context.Context, Access) error {
		return func(ctx context.Context, a Access) error { _, err := a.FencedLock("x", o).Lock(ctx); return err }
	}
	settings := func(c conclave.GroupConfig) func(context.Context, Access) error {
		return func(ctx context.Context, a Access) error { return a.SetGroupConfig(ctx, c) }
	}
	return []badCall{
		call("session's name", conclave.ErrInvalid, session(conclave.SessionConfig{Name: "\xff"})),
		call("long name", conclave.ErrTooLarge, session(conclave.SessionConfig{Name: strings.Repeat("x", 513)})),
		call("TTL", conclave.ErrInvalid, session(conclave.SessionConfig{TTL: 15})),
		call("LockDelay", conclave.ErrInvalid, session(conclave.SessionConfig{LockDelay: 15})),
		call("Behavior", conclave.ErrInvalid, session(conclave.SessionConfig{Behavior: 7})),
		call("Linger", conclave.ErrInvalid, lock(conclave.Linger(500))),
		call("Reentrant", conclave.ErrInvalid, lock(conclave.Reentrant(-1))),
		call("label", conclave.ErrInvalid, lock(conclave.WithLabel("\xff"))),
		call("limit", conclave.ErrInvalid, func(ctx context.Context, a Access) error { _, err := a.Semaphore("s", 0).Acquire(ctx, 1); return err }),
		call("permits", conclave.ErrTooLarge, func(ctx context.Context, a Access) error { _, err := a.Semaphore("s", 1).Acquire(ctx, 2); return err }),
		call("candidate", conclave.ErrTooLarge, func(ctx context.Context, a Access) error {
			_, err := a.Election("e").Campaign(ctx, make([]byte, 64<<10+1))
			return err
		}),
		call("value", conclave.ErrTooLarge, func(ctx context.Context, a Access) error {
			_, err := a.KV().Put(ctx, "k", make([]byte, 512<<10+1))
			return err
		}),
		call("fence", conclave.ErrInvalid, func(ctx context.Context, a Access) error { _, err := a.KV().PutFenced(ctx, "k", nil, 0); return err }),
		call("no operation", conclave.ErrInvalid, func(ctx context.Context, a Access) error { _, err := a.KV().Txn(ctx); return err }),
		call("zero operation", conclave.ErrInvalid, func(ctx context.Context, a Access) error { _, err := a.KV().Txn(ctx, conclave.Op{}); return err }),
		call("sequencer", conclave.ErrInvalid, func(ctx context.Context, a Access) error {
			return a.CheckSequencer(ctx, conclave.Sequencer{Key: "k"})
		}),
		call("voters", conclave.ErrInvalid, settings(conclave.GroupConfig{Voters: 2})),
		call("ReplaceAfter", conclave.ErrInvalid, settings(conclave.GroupConfig{Voters: 1, ReplaceAfter: 60})),
		call("RemoveAfter", conclave.ErrInvalid, settings(conclave.GroupConfig{Voters: 1, RemoveAfter: time.Second})),
	}
}

// A node and a client refuse the same arguments with the same error, before anything is sent: also
// with a context that has ended.
func TestArguments_RefusedAlike(t *testing.T) {
	t.Parallel()
	calls := badValues()
	for text, want := range badTexts() {
		calls = append(append(calls, badPrefixes(text, want)...), badNames(text, want)...)
	}
	calls = append(calls, badNames("", conclave.ErrInvalid)...)
	texts := make(map[string][]string) // of the errors
	BothWays(t, func(t *testing.T, a Access) {
		for i, c := range calls {
			err := c.do(Expired(), a)
			if !errors.Is(err, c.want) || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			key := fmt.Sprint(i, c.name)
			texts[key] = append(texts[key], fmt.Sprint(err))
		}
		list, err := Collect(a.Locks(Bounded(t), ""))
		if err != nil || len(list) > 0 {
			t.Errorf("left behind: %+v, %v", list, err)
		}
	})
	for key, both := range texts {
		if len(both) != 2 || both[0] != both[1] {
			t.Errorf("%s: the node and the client have other texts: %q", key, both)
		}
	}
}
