package conclave

import (
	"context"
	"errors"
	"testing"
)

// The answer to a client's CreateGroup comes late: the group has been deleted, and the client uses a later one of the name. Its handle to
// that one must not end, and the late one must not work.
func TestClientGroups_LateAnswer(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	c, err := Dial(t.Context(), &ClientConfig{Addresses: []string{n.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.CreateGroup(t.Context(), "x", GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	earlier := c.groups.door("x").number
	if err := c.DeleteGroup(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	later, err := c.CreateGroup(t.Context(), "x", GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	late := c.groups.numbered("x", earlier)
	if err := late.reachNumber(t.Context(), earlier); !errors.Is(convert(err), ErrGroupNotFound) {
		t.Errorf("the late answer reaches a group: %v", err)
	}
	if _, err := late.group.KV().Put(t.Context(), "k", nil); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("a key of the deleted group: %v", err)
	}
	if err := c.groups.door("x").reachNumber(t.Context(), earlier); err != nil {
		t.Errorf("a call that waits for the group got a late answer: %v", err)
	}
	if _, err := later.KV().Put(t.Context(), "k", nil); err != nil {
		t.Errorf("the later group: %v", err)
	}
}
