package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	writers   = 4
	valueSize = 128 << 10
	warmUp    = 200 * time.Millisecond
	measuring = 2 * time.Second
)

// measure returns what 19 of 20 locks with their unlocks take at most, while writers write to another group, or to the same.
func measure(ctx context.Context, quiet, write *conclave.Group) (time.Duration, error) {
	writing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	if write != nil {
		for i := range writers {
			all.Go(func() { put(writing, write.KV(), fmt.Sprint("report/", i)) })
		}
		select {
		case <-time.After(warmUp): // until the writers' values are before each lock
		case <-ctx.Done():
		}
	}
	took, err := lockOften(ctx, quiet.FencedLock("invoices"))
	stop()
	all.Wait()
	if err != nil {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)*19/20], nil
}

// put writes large values until ctx is done. What fails then is of no interest here.
func put(ctx context.Context, kv *conclave.KV, key string) {
	value := make([]byte, valueSize)
	for n := byte(0); ctx.Err() == nil; n++ {
		value[0] = n // what changes nothing would not be written
		_, _ = kv.Put(ctx, key, value)
	}
}

func lockOften(ctx context.Context, l *conclave.FencedLock) (took []time.Duration, err error) {
	for start := time.Now(); time.Since(start) < measuring; {
		began := time.Now()
		if _, err := l.Lock(ctx); err != nil {
			return nil, err
		}
		if err := l.Unlock(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
