package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave"
)

// cache reads keys of the group from memory. Once a write has returned, no process
// reads an older value.
type cache struct {
	node   *conclave.Node
	kv     *conclave.KV
	linger time.Duration

	mu    sync.Mutex
	items map[string]*item // guarded by mu
}

// item is a key with its lock: a reader holds it shared, a writer exclusively.
type item struct {
	key  string // also the name of the lock
	lock *conclave.RWLock
	last atomic.Pointer[value] // nil: it was never read
}

// value is what a key had while readers held its lock with that fence. Those that
// hold the lock together have one fence, and a new one after each writer. So the value
// is current for a reader with the same fence, and nothing has to remove it: neither
// a recall nor the loss of the lock.
type value struct {
	text  string
	fence conclave.Fence
}

func newCache(node *conclave.Node, linger time.Duration) *cache {
	return &cache{node: node, kv: node.KV(), linger: linger, items: make(map[string]*item)}
}

// item returns the item of a key. All goroutines share its handle.
func (c *cache) item(key string) *item {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.items[key]
	if !ok {
		name := "cache/" + key
		i = &item{key: name, lock: c.node.RWLock(name, conclave.Linger(c.linger))}
		c.items[key] = i
	}
	return i
}

// get reads a key, which is empty if it does not exist; near says that it was in memory. While
// the lock lingers in this process, get neither sends a message nor writes to a disk. After an error
// that wraps ErrLockOwnershipLost, ErrSessionExpired or ErrStaleFence get may be called again.
func (c *cache) get(ctx context.Context, key string) (text string, near bool, err error) {
	i := c.item(key)
	fence, err := i.lock.RLock(ctx)
	if err != nil {
		return "", false, err
	}
	v := i.last.Load()
	near = v != nil && v.fence == fence
	if !near {
		if v, err = c.load(ctx, i.key, fence); err == nil {
			i.last.Store(v)
		}
	}
	// That the release succeeds shows that the lock was held until now, so no write has
	// returned since RLock. After a pause of the process, for one, it fails.
	if lost := i.lock.RUnlock(ctx); err == nil {
		err = lost
	}
	if err != nil {
		return "", false, err
	}
	return v.text, near, nil
}

// load reads a key from the group and leaves the fence of the readers there, unless another reader
// has. A writer that has lost the lock without noticing has a smaller one, so the group refuses
// its late write, which would make what readers have in memory old.
func (c *cache) load(ctx context.Context, key string, fence conclave.Fence) (*value, error) {
	for {
		e, err := c.kv.Get(ctx, key)
		if err != nil && !errors.Is(err, conclave.ErrKeyNotFound) {
			return nil, err
		}
		if e.Fence != fence {
			_, err = c.kv.Txn(ctx, conclave.OpExpect(key, e.ModifyIndex), conclave.OpPutFenced(key, e.Value, fence))
		}
		if !errors.Is(err, conclave.ErrCompareFailed) { // of a reader, or of such a writer, that came first
			return &value{text: string(e.Value), fence: fence}, err
		}
	}
}

// put writes a key. Its Lock recalls the lock from all processes that read the key, and
// waits for the readers of this moment. A process that has crashed costs it the TTL.
func (c *cache) put(ctx context.Context, key, text string) error {
	i := c.item(key)
	return i.lock.Do(ctx, func(ctx context.Context, fence conclave.Fence) error {
		_, err := c.kv.PutFenced(ctx, i.key, []byte(text), fence)
		return err
	})
}
