package conclave

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
)

// What a node keeps for watchers is bounded for all further groups together, and apart from the default group.
func TestNodeGroups_ChangesKeptTogether(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	const perGroup = 30 // MiB
	value := make([]byte, 1<<20)
	write := func(c *client.Client) {
		for i := range uint64(perGroup) {
			c.Changed([]fact.KeyChange{{Index: i + 1, Entry: &fact.Entry{Key: "k", Value: value}}}, nil)
		}
	}
	kept := func(c *client.Client) (n int) {
		for after := range uint64(perGroup) {
			err := c.FollowKeys(t.Context(), "", after, func(fact.KeyChange) bool { n++; return after+uint64(n) < perGroup })
			if err == nil {
				return n
			}
			n = 0
		}
		return 0
	}
	write(n.client)
	var all []*furtherGroup
	sum := 0
	for i := range 20 {
		all = append(all, n.groups.newGroup(fmt.Sprint(i)))
		write(all[i].client)
	}
	for _, f := range all {
		m := kept(f.client)
		if m == 0 {
			t.Errorf("group %s keeps nothing", f.name)
		}
		sum += m
		f.client.Stopped(nil, true)
		f.end()
	}
	if sum > maxGroupChanges>>20 || sum < maxGroupChanges>>21 {
		t.Errorf("20 groups keep %d MiB for watchers", sum)
	}
	if m := kept(n.client); m != perGroup {
		t.Errorf("the default group keeps %d MiB", m)
	}
}

// A node that has been closed is not taken for one whose group is deleted.
func TestNodeGroups_AwaitedWhileClosing(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := n.groups.newGroup("a")
	_ = n.Close(t.Context())
	f.client.Stopped(nil, true)
	f.end()
	for range 20 {
		if err := convert(f.await(t.Context(), f.ready)); !errors.Is(err, ErrClosed) || errors.Is(err, ErrGroupNotFound) {
			t.Fatalf("%v, want ErrClosed", err)
		}
	}
}

// logBuffer is a log of lines that a test reads while others write.
type logBuffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *logBuffer) wantGroup(t *testing.T, message string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.bytes.String()) {
		if strings.Contains(line, message) && strings.Contains(line, "groupName=tenant") {
			return
		}
	}
	t.Errorf("no line %q with the group in\n%s", message, b.bytes.String())
}

// What the log of a process states of a further group names that, since a name in two groups is two locks.
func TestGroups_NamedInLog(t *testing.T) {
	var ofNode, ofClient logBuffer
	n, err := Open(t.Context(), &Config{Logger: slog.New(slog.NewTextHandler(&ofNode, nil))})
	if err != nil {
		t.Fatal(err)
	}
	f, err := n.CreateGroup(t.Context(), "tenant", GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), &ClientConfig{Addresses: []string{n.Status().Members[0].Addr}, Logger: slog.New(slog.NewTextHandler(&ofClient, nil))})
	if err != nil {
		t.Fatal(err)
	}
	var lost []<-chan struct{}
	for name, g := range map[string]*Group{"of the node": f, "of the client": c.WithGroup("tenant")} {
		l := g.FencedLock(name)
		if _, err := l.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost = append(lost, l.Lost())
	}
	if err := c.DeleteGroup(t.Context(), "tenant", Force()); err != nil {
		t.Fatal(err)
	}
	for _, l := range lost {
		<-l // a process that closes before it learns of the deletion loses nothing
	}
	_ = c.Close(t.Context())
	_ = n.Close(t.Context()) // both have written all lines
	for _, message := range []string{"session lost", "lock lost", "group deleted"} {
		ofNode.wantGroup(t, message)
	}
	for _, message := range []string{"session lost", "lock lost", "connected to member"} {
		ofClient.wantGroup(t, message)
	}
}
