//go:build linux

package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/conclave-go/conclave"
)

// emptyOrigin returns groups that are not used.
type emptyOrigin struct{ origin }

func (emptyOrigin) CreateGroup(context.Context, string, conclave.GroupConfig) (*conclave.Group, error) {
	return new(conclave.Group), nil
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

// The checks of stale handles find nothing without the handles in the history.
func TestCreate_HandleRecorded(t *testing.T) {
	var file bytes.Buffer
	c := &client{
		load: &load{process: &memberProcess{}, history: &recorder{file: nopCloser{&file}, fail: func(err error) { t.Error(err) }}},
		from: emptyOrigin{}, name: "m", random: rand.New(rand.NewPCG(1, 1)),
	}
	for range 2 {
		g, _ := c.create("forced-0")
		c.enterCreated("forced-0#x", g)
		c.history.call(record{Op: opPut})
		c.history.call(record{Op: opForce})
	}
	c.enter(defaultGroup, nil)
	c.history.call(record{Op: opPut})
	ops, err := readHistory("m", &file)
	if err != nil || len(ops) != 7 {
		t.Fatalf("got %d operations and error %v, want 7", len(ops), err)
	}
	first, second := ops[0].Handle, ops[3].Handle
	if first == "" || second == "" || first == second || ops[6].Handle != "" {
		t.Errorf("got handles %q, %q and %q, want two different ones and none", first, second, ops[6].Handle)
	}
	for i, op := range ops[:6] {
		if op.Handle != ops[i/3*3].Handle {
			t.Errorf("got handle %q, want that of the creation: %v", op.Handle, op)
		}
	}
}
