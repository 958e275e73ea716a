package main

import (
	"context"
	"fmt"
	"io"
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

// follow keeps a local copy of the group's configuration up to date, until ctx is done or the
// node stops. It never returns nil.
func follow(ctx context.Context, kv *conclave.KV, prefix string, logf logFunc) error {
	config := make(map[string]conclave.Entry)
	for event, err := range kv.Follow(ctx, prefix) {
		switch e := event.Entry; {
		case err != nil:
			return err
		case event.Synced: // config is all of it, as it was at one point in time
			logf("up to date: %d keys", len(config))
		case event.Deleted:
			delete(config, e.Key)
			logf("%s is deleted (index %d)", e.Key, event.Index)
		default:
			config[e.Key] = e
			logf("%s = %s (index %d)", e.Key, e.Value, e.ModifyIndex)
		}
	}
	return nil
}
