package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// startGroup starts a group of three members over loopback.
func startGroup(t *testing.T) []*Member {
	t.Helper()
	const n = 3
	members := make([]*Member, n)
	configs := make([]Config, n)
	var join []string
	for i := range configs {
		configs[i] = alone(t)
		join = append(join, configs[i].Advertise)
	}
	var starting sync.WaitGroup
	for i := range configs {
		configs[i].Expect, configs[i].Voters, configs[i].Join = n, n, join
		starting.Go(func() {
			m, err := Start(t.Context(), configs[i])
			if err != nil {
				t.Error(err)
				return
			}
			members[i] = m
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		for _, m := range members {
			if m != nil {
				m.Stop()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return members
}

// leaderOf waits until a member knows the leader.
func leaderOf(t *testing.T, m *Member) uint64 {
	t.Helper()
	for ; ; <-time.After(time.Millisecond) { // nothing signals it
		if err := m.replica.Read(t.Context(), func(Machine) {}); err != nil { // the leader has confirmed it
			t.Fatal(err)
		}
		if leader := m.Status().Leader; leader != 0 {
			return leader
		}
	}
}

// Leadership is transferred on request of every member.
func TestTransferLeadership(t *testing.T) {
	members := startGroup(t)
	t.Run("from every member to every member", func(t *testing.T) { transferToEach(t, members) })
	t.Run("refused", func(t *testing.T) { transferRefused(t, members) })
}

func transferToEach(t *testing.T, members []*Member) {
	for _, asking := range members {
		for _, to := range members {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			for ; ; <-time.After(time.Millisecond) { // nothing signals it
				err := asking.replica.TransferLeadership(ctx, to.identity.Member)
				if err == nil && leaderOf(t, asking) == to.identity.Member {
					break
				}
				if err != nil && !errors.Is(err, ErrNoSuccessor) { // it may lag for a moment
					t.Fatal(err)
				}
			}
			cancel()
		}
	}
}

// transferRefused requests impossible transfers.
func transferRefused(t *testing.T, members []*Member) {
	leader := leaderOf(t, members[0])
	for _, m := range members {
		if err := m.replica.TransferLeadership(t.Context(), 12345); !errors.Is(err, ErrNoSuccessor) {
			t.Errorf("to an unknown member: %v", err)
		}
		if m.identity.Member == leader {
			continue
		}
		// Under load another election may have made it the leader: then the term has moved.
		term := m.Status().Term
		if err := m.replica.StepDown(t.Context()); !errors.Is(err, ErrNotLeader) && m.Status().Term == term {
			t.Errorf("a follower steps down: %v", err)
		}
	}
}

// Without a leader a transfer waits until its context is done.
func TestTransferLeadership_NoLeader(t *testing.T) {
	members := startGroup(t)
	leaderOf(t, members[0])
	members[1].Stop()
	members[2].Stop()
	for members[0].Status().Leader != 0 {
		<-time.After(time.Millisecond) // Status is a view; nothing reports its change
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := members[0].replica.TransferLeadership(ctx, 0); !errors.Is(err, ErrNoLeader) {
		t.Errorf("%v", err)
	}
	// The member waits for its own goroutines before anything that is pending is answered.
	members[0].routine("test", func() { _ = members[0].replica.TransferLeadership(members[0].lifetime, 0) })
	members[0].Stop()
}
