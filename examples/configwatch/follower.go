package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// teller prints a line with the time of day.
type teller func(format string, args ...any)

func newTeller(w io.Writer) teller {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// follower keeps a copy of the configuration in step with the group's.
type follower struct {
	kv     *conclave.KV
	prefix string
	config map[string]conclave.Entry // by key
	say    teller
}

func newFollower(kv *conclave.KV, prefix string, say teller) *follower {
	return &follower{kv: kv, prefix: prefix, config: make(map[string]conclave.Entry), say: say}
}

// follow reads what is and then follows each change, until ctx ends or the node
// stops. Who is too slow, or was away for too long, begins with reading again.
func (f *follower) follow(ctx context.Context) error {
	for {
		after, err := f.read(ctx)
		if err == nil {
			err = f.watch(ctx, after)
		}
		if !errors.Is(err, conclave.ErrCompacted) {
			return err
		}
		f.say("too far behind to see each change; reading all of it again")
	}
}

// read brings the copy up to date and returns after which index to watch. The
// index is asked for before the list: what changes between the two is in the list
// and comes once more, where the other order would miss it.
func (f *follower) read(ctx context.Context) (after uint64, err error) {
	after, err = f.kv.Index(ctx)
	if err != nil {
		return 0, err
	}
	entries, err := f.kv.List(ctx, f.prefix)
	if err != nil {
		return 0, err
	}
	gone := maps.Clone(f.config)
	for _, e := range entries {
		delete(gone, e.Key)
		f.set(e)
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		delete(f.config, key)
		f.say("%s is gone", key)
	}
	f.say("up to date: %d keys", len(f.config))
	return after, nil
}

// watch returns only with an error, which is the last that Watch yields.
func (f *follower) watch(ctx context.Context, after uint64) error {
	for event, err := range f.kv.Watch(ctx, f.prefix, after) {
		switch known := f.config[event.Entry.Key]; {
		case err != nil:
			return err
		case event.Index <= known.ModifyIndex: // it was in the list
		case event.Deleted:
			delete(f.config, event.Entry.Key)
			f.say("%s is deleted (index %d)", event.Entry.Key, event.Index)
		default:
			f.set(event.Entry)
		}
	}
	return nil
}

func (f *follower) set(e conclave.Entry) {
	if f.config[e.Key].ModifyIndex == e.ModifyIndex {
		return
	}
	f.config[e.Key] = e
	f.say("%s = %s (index %d)", e.Key, e.Value, e.ModifyIndex)
}
