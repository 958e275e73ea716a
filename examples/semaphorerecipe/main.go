// Semaphorerecipe builds a semaphore from sessions and keys alone, as Consul's
// guide does, and runs a story with it in which one holder crashes:
//
//	go run ./examples/semaphorerecipe
//
// A program does not need this recipe: Node.Semaphore is one call, serves waiters
// in order, and gives each holder a fence, which the recipe lacks.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/examples/oneprocess"
)

// All contenders agree on the prefix, the lock key and the limit.
const (
	prefix  = "service/reports/lock/"
	lockKey = prefix + ".lock" // its value is slots
	limit   = 2
)

type slots struct { // in the format of the guide
	Limit   int
	Holders map[string]bool // by session ID
}

type contender struct {
	name, id string // id is the session's
	kv       *conclave.KV
	session  *conclave.Session
}

// contend opens a session, and acquires with it a key that is named after it. The
// contender is alive while it holds that key, which is deleted with the session.
func contend(ctx context.Context, n *conclave.Node) (*contender, error) {
	session, err := n.NewSession(ctx, &conclave.SessionConfig{TTL: 10 * time.Second, Behavior: conclave.DeleteKeys})
	if err != nil {
		return nil, err
	}
	c := &contender{n.Status().Name, session.ID().String(), n.KV(), session}
	_, err = c.kv.Acquire(ctx, prefix+c.id, []byte(c.name), session.ID()) // the value is for people
	log.Printf("%s contends, with session %s", c.name, c.id)
	return c, err
}

// list reads the lock key and the contenders' keys at once, and leaves out dead
// holders: those without a contender's key. version is the lock key's, and the next
// change has an index larger than index.
func (c *contender) list(ctx context.Context) (s slots, version, index uint64, err error) {
	if index, err = c.kv.Index(ctx); err != nil { // before List, so that until misses no change
		return s, 0, 0, err
	}
	entries, err := c.kv.List(ctx, prefix)
	if err != nil {
		return s, 0, 0, err
	}
	s = slots{limit, make(map[string]bool)}
	alive := make(map[string]bool)
	for _, e := range entries {
		if alive[e.Session.String()] = true; e.Key == lockKey {
			version, err = e.ModifyIndex, json.Unmarshal(e.Value, &s)
		}
	}
	for holder := range s.Holders {
		if !alive[holder] {
			log.Printf("%s leaves out a holder without a contender key: it is dead", c.name)
			delete(s.Holders, holder)
		}
	}
	if err == nil && s.Limit != limit {
		err = fmt.Errorf("invalid limit: want %d, as other contenders use, got %d", s.Limit, limit)
	}
	return s, version, index, errors.Join(err, c.session.Err()) // without a session it is no contender
}

// swap writes the lock key, unless it has changed since version.
func (c *contender) swap(ctx context.Context, s slots, version uint64) (swapped bool, err error) {
	text, _ := json.Marshal(s) // it cannot fail
	_, swapped, err = c.kv.CompareAndSwap(ctx, lockKey, version, text)
	return swapped, err
}

// try takes a slot if one is free. If not, a change after index may free one.
func (c *contender) try(ctx context.Context) (taken bool, index uint64, err error) {
	s, version, index, err := c.list(ctx)
	if err != nil {
		return false, 0, err
	}
	if len(s.Holders) >= limit {
		log.Printf("%s waits: %d of %d slots are taken", c.name, len(s.Holders), limit)
		return false, index, nil
	}
	s.Holders[c.id] = true
	if taken, err = c.swap(ctx, s, version); taken {
		log.Printf("%s holds a slot: %d of %d are taken", c.name, len(s.Holders), limit)
	}
	return taken, index, err // if another contender was faster, its change is after index
}

// lost reports whether the holder has lost its slot. It also has with its session,
// whose Done is closed without the group, by the local clock.
func (c *contender) lost(ctx context.Context) (lost bool, index uint64, err error) {
	s, _, index, err := c.list(ctx)
	if lost = err == nil && !s.Holders[c.id]; lost {
		log.Printf("%s sees that its slot is revoked, and stops working", c.name)
	}
	return lost, index, err
}

// until calls step, and again after each change under the prefix, until it is done.
func (c *contender) until(ctx context.Context, step func(context.Context) (bool, uint64, error)) error {
	for {
		done, index, err := step(ctx)
		if done || err != nil {
			return err
		}
		for _, err := range c.kv.Watch(ctx, prefix, index) {
			if err != nil && !errors.Is(err, conclave.ErrCompacted) {
				return err
			}
			break // step lists what has changed
		}
	}
}

// revoke removes a holder. It retries if another change came first.
func (c *contender) revoke(ctx context.Context, holder string) error {
	return c.until(ctx, func(ctx context.Context) (bool, uint64, error) {
		s, version, index, err := c.list(ctx)
		if err != nil {
			return false, 0, err
		}
		delete(s.Holders, holder)
		done, err := c.swap(ctx, s, version)
		return done, index, err
	})
}

// release removes the holder before its key: else it would look like a dead one.
func (c *contender) release(ctx context.Context) error {
	if err := c.revoke(ctx, c.id); err != nil {
		return err
	}
	log.Printf("%s releases its slot", c.name)
	return errors.Join(c.kv.Delete(ctx, prefix+c.id), c.session.Close(ctx))
}

// story crashes anna while it holds a slot. Then an operator revokes ben's.
func story(ctx context.Context) error {
	group := oneprocess.Group("anna", "ben", "clara")
	defer oneprocess.Close(group)
	if err := oneprocess.Start(ctx, group, group...); err != nil {
		return err
	}
	log.Printf("the group has formed; at most %d members hold a slot at a time", limit)
	all := make([]*contender, len(group))
	for i, m := range group {
		var err error
		if all[i], err = contend(ctx, m.Node); err != nil {
			return err
		}
	}
	anna, ben, clara := all[0], all[1], all[2]
	if err := errors.Join(anna.until(ctx, anna.try), ben.until(ctx, ben.try)); err != nil {
		return err
	}
	if taken, _, err := clara.try(ctx); taken || err != nil {
		return errors.Join(err, errors.New("clara does not wait"))
	}
	log.Print("anna is killed, without a graceful shutdown; its session expires")
	group[0].Kill()
	if err := clara.until(ctx, clara.try); err != nil {
		return err
	}
	lost := make(chan error, 1)
	go func() { lost <- ben.until(ctx, ben.lost) }()
	log.Print("operator revokes ben's slot")
	if err := errors.Join(clara.revoke(ctx, ben.id), <-lost, ben.until(ctx, ben.try), ben.release(ctx), clara.release(ctx)); err != nil {
		return err
	}
	entries, err := clara.kv.List(ctx, prefix)
	for _, e := range entries {
		log.Printf("%d key left, %s: %s", len(entries), e.Key, e.Value)
	}
	return err
}

func main() {
	log.SetOutput(os.Stdout)
	oneprocess.Main("semaphorerecipe", "Semaphorerecipe builds a semaphore from sessions and keys.", story)
}
