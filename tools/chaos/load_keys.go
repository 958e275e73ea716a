//go:build linux

package main

import (
	"time"

	"github.com/conclave-go/conclave"
)

// keyTurn reads, writes or swaps one key. A swap mostly expects what a read found just
// before.
func (c *client) keyTurn() int {
	key := c.object("key", keys)
	switch p := c.random.IntN(100); {
	case p < 45:
		c.get(key)
		return 1
	case p < 70:
		value := c.label()
		c.write(record{Op: opPut, Name: key, Value: value})
		return 1
	case p < 75:
		c.write(record{Op: opSwap, Name: key, Value: c.label()}) // expects no key
		return 1
	}
	e, ok := c.get(key)
	if ok {
		c.write(record{Op: opSwap, Name: key, Value: c.label(), Index: e.Index})
	}
	return 2
}

func (c *client) get(key string) (record, bool) {
	ctx, cancel := c.within(time.Second, 4*time.Second)
	defer cancel()
	r, _ := c.asks(record{Op: opGet, Name: key}, func() (record, error) {
		e, err := c.access.KV().Get(ctx, key)
		return record{Value: string(e.Value), Index: e.ModifyIndex}, err
	})
	return r, r.Result == resultOK || r.Result == resultAbsent
}

func (c *client) write(call record) {
	ctx, cancel := c.within(time.Second, 4*time.Second)
	defer cancel()
	_, _ = c.asks(call, func() (record, error) {
		if call.Op == opPut {
			e, err := c.access.KV().Put(ctx, call.Name, []byte(call.Value))
			return record{Index: e.ModifyIndex}, err
		}
		e, swapped, err := c.access.KV().CompareAndSwap(ctx, call.Name, call.Index, []byte(call.Value))
		if err == nil && !swapped {
			err = conclave.ErrLocked // another index: a refusal
		}
		return record{Index: e.ModifyIndex}, err
	}) // the history has the error
}
