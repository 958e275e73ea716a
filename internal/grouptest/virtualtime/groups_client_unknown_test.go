package virtualtime

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// The member of a client has begun to delete a group, and loses the connection before it is known what becomes of that. Another one refuses, since the group
// holds a lock. That is no answer to the first attempt, which succeeds once the lock is free.
func TestClient_DeleteGroupRepeated(t *testing.T) {
	inMembershipBubble(t, outsider+1, func(g *membership) {
		g.tenants(0, "a")
		g.awaitFollowed()
		first := g.Leader()
		leads := g.Others(first)[0]
		slow := 3 - first - leads
		at := g.Nodes[leads].WithGroup("a")
		for ctx := grouptest.Within(g.T, time.Minute); ; pass(100 * time.Millisecond) {
			if info, ok := g.Nodes[leads].GroupInfo("a"); ok && info.Leader == g.ID(leads) {
				break
			}
			_ = at.TransferLeadership(ctx, g.ID(leads))
		}
		pass(5 * time.Second)
		held := at.FencedLock("x")
		grouptest.MustLock(g.T, held)
		c := grouptest.Dial(g.T, &conclave.ClientConfig{Dial: g.Net.Dialer(outsider)}, g.Nodes[slow])
		pass(2 * time.Second)

		g.Net.Delay(slow, leads, 2*time.Second)
		deleted := make(chan error, 1)
		go func() { deleted <- c.DeleteGroup(grouptest.Within(g.T, time.Minute), "a") }()
		pass(200 * time.Millisecond)
		g.Net.Partition(outsider, slow)
		g.Net.Reset(outsider)
		err := <-deleted
		grouptest.MustUnlock(g.T, held)
		pass(10 * time.Second)
		list, listErr := grouptest.Collect(g.Nodes[leads].Groups(grouptest.Within(g.T, time.Minute)))
		grouptest.Must(g.T, listErr)
		exists := slices.ContainsFunc(list, func(i conclave.GroupInfo) bool { return i.Name == "a" })
		if exists {
			g.T.Error("the first attempt had no effect: the test shows nothing")
		}
		if !errors.Is(err, conclave.ErrUnknown) || errors.Is(err, conclave.ErrLocked) {
			g.T.Errorf("the group is deleted after %v", err)
		}
	}, grouptest.Newcomers(1))
}
