package virtualtime

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// A Deployment with empty disks rolls one pod at a time, with a surge of one: a new pod joins
// under a new identity and at a new address, then an old one leaves. Three rollouts replace
// every member three times, and a lock is used all the time.
func TestRollout_DeploymentWithEmptyDisks(t *testing.T) {
	skipIfShort(t)
	const replicas, rollouts = 3, 3
	inPods(t, replicas*(rollouts+1), replicas, func(p *pods) {
		p.form(0, 1, 2)
		user := useLock(p.T, p.Nodes[0])
		up := []int{0, 1, 2}
		for next := replicas; next < replicas*(rollouts+1); next++ {
			p.move(next)
			p.Start(next)
			p.publish(next)
			pass(2 * time.Second) // minReadySeconds
			old := up[0]
			up = append(up[1:], next)
			p.withdraw(old)
			user.move(p.Nodes[old]) // which closes while it is used
			pass(100 * time.Millisecond)
			ctx := grouptest.Within(p.T, 30*time.Second) // terminationGracePeriodSeconds
			if err := p.Nodes[old].Leave(ctx); err != nil {
				p.T.Errorf("pod %d does not leave: %v", old, err)
			}
			p.Nodes[old] = nil
			user.move(p.Nodes[up[next%replicas]])
		}
		p.awaitVoters(replicas, 0)
		if v, _ := p.roles(up[0]); !slices.Equal(v, up) {
			p.T.Errorf("the voters are %v; want %v", v, up)
		}
		user.end()
		user.wantGrants(500, 5*time.Second)
		p.WantWorking()
	})
}

// The same, but the pods that remain use the lock, and the old pod is killed at the end of
// its grace period: its Leave does not get the time that it needs.
func TestRollout_DeploymentKilledPods(t *testing.T) {
	skipIfShort(t)
	const replicas = 3
	rollouts := 1
	if *long {
		rollouts = 2
	}
	all := (1 + rollouts) * replicas
	inPods(t, all, replicas, func(p *pods) {
		p.form(0, 1, 2)
		up := []int{0, 1, 2}
		for next := replicas; next < all; next++ {
			p.move(next)
			p.Start(next)
			p.publish(next)
			old := up[0]
			up = append(up[1:], next)
			p.withdraw(old)
			p.Kill(old)
			p.awaitVoters(replicas, 0) // the dead one is replaced and, as it has no directory, removed
		}
		p.WantWorking()
	}, inMemory)
}

// A StatefulSet with disks restarts one pod after the other, each at a new address: Close on
// SIGTERM, no membership change.
func TestRollout_StatefulSetWithDisks(t *testing.T) {
	skipIfShort(t)
	const replicas, rollouts = 3, 3
	inPods(t, replicas, replicas, func(p *pods) {
		p.form(0, 1, 2)
		ids := p.ids()
		user := useLock(p.T, p.Nodes[0])
		for range rollouts {
			for i := replicas - 1; i >= 0; i-- {
				user.move(p.Nodes[i])
				pass(100 * time.Millisecond)
				p.withdraw(i)
				p.Close(i)
				user.move(p.Nodes[(i+1)%replicas])
				pass(5 * time.Second) // until the next container runs
				p.move(i)
				p.publish(i)
				p.Start(i)
			}
		}
		p.wantIDs(ids)
		user.end()
		user.wantGrants(500, 5*time.Second)
		p.WantWorking()
	})
}

// The name service lags behind: it shows each pod's former address until half a minute after
// the start.
func TestRollout_StatefulSetStaleNames(t *testing.T) {
	const replicas = 3
	inPods(t, replicas, replicas, func(p *pods) {
		p.form(0, 1, 2)
		ids := p.ids()
		for i := range replicas {
			p.Close(i)
			former := p.Configs[i].Bind
			p.move(i)
			p.Start(i)
			time.AfterFunc(30*time.Second, func() {
				p.names.Remove(service, former)
				p.publish(i)
			})
		}
		p.wantIDs(ids)
		p.WantWorking()
		pass(30 * time.Second)
	})
}

// wantGrants checks that the lock was granted at least n times, and never took longer than
// slowest.
func (u *lockUser) wantGrants(n int, slowest time.Duration) {
	u.t.Helper()
	if u.count < n || u.slow > slowest {
		u.t.Errorf("%d grants, the slowest after %v; want %d and at most %v", u.count, u.slow, n, slowest)
	}
}
