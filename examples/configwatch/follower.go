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

// logFunc prints one line with the time of day.
type logFunc func(format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// follower keeps a local copy of the group's configuration up to date.
type follower struct {
	kv     *conclave.KV
	prefix string
	config map[string]conclave.Entry // by key
	logf   logFunc
}

func newFollower(kv *conclave.KV, prefix string, logf logFunc) *follower {
	return &follower{kv: kv, prefix: prefix, config: make(map[string]conclave.Entry), logf: logf}
}

// follow lists the keys and then watches them, until ctx is done or the node
// stops. If the watch falls too far behind, it lists again.
func (f *follower) follow(ctx context.Context) error {
	for {
		after, err := f.list(ctx)
		if err == nil {
			err = f.watch(ctx, after)
		}
		if !errors.Is(err, conclave.ErrCompacted) {
			return err
		}
		f.logf("too far behind to watch each change; listing all keys again")
	}
}

// list brings the copy up to date and returns the index to watch from. It reads
// the index before the list: a change between the two is in the list and is
// delivered once more, where the other order would miss it.
func (f *follower) list(ctx context.Context) (after uint64, err error) {
	after, err = f.kv.Index(ctx)
	if err != nil {
		return 0, err
	}
	entries, err := f.kv.List(ctx, f.prefix)
	if err != nil {
		return 0, err
	}
	deleted := maps.Clone(f.config)
	for _, e := range entries {
		delete(deleted, e.Key)
		f.set(e)
	}
	for _, key := range slices.Sorted(maps.Keys(deleted)) {
		delete(f.config, key)
		f.logf("%s is deleted", key)
	}
	f.logf("up to date: %d keys", len(f.config))
	return after, nil
}

// watch applies changes to the copy. It returns the last error of Watch, never
// nil.
func (f *follower) watch(ctx context.Context, after uint64) error {
	for event, err := range f.kv.Watch(ctx, f.prefix, after) {
		switch known := f.config[event.Entry.Key]; {
		case err != nil:
			return err
		case event.Index <= known.ModifyIndex: // the list had it
		case event.Deleted:
			delete(f.config, event.Entry.Key)
			f.logf("%s is deleted (index %d)", event.Entry.Key, event.Index)
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
	f.logf("%s = %s (index %d)", e.Key, e.Value, e.ModifyIndex)
}
