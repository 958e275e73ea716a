package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/go-zookeeper/zk"
)

// zooKeeperGroup is three servers of ZooKeeper, processes of their own, with clients in this
// process that connect to them by TCP. Each caller has a session of its own, as with etcd.
type zooKeeperGroup struct {
	servers []*zooKeeperServer

	mu   sync.Mutex
	all  []*zk.Conn          // to close
	idle [members][]*zk.Conn // of a member, between two calls of put or get
}

func startZooKeeper(ctx context.Context, dir string) (group, error) {
	java, err := findZooKeeper()
	if err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(3 * members)
	if err != nil {
		return nil, err
	}
	g := new(zooKeeperGroup)
	for i := range members {
		s, err := startZooKeeperServer(ctx, java, filepath.Join(dir, fmt.Sprint("m", i)), i, addresses)
		if err != nil {
			g.close()
			return nil, err
		}
		g.servers = append(g.servers, s)
	}
	for _, s := range g.servers {
		if err := s.await(ctx); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

func (g *zooKeeperGroup) leader(ctx context.Context) (int, error) {
	for i, s := range g.servers {
		if mode, err := s.mode(ctx); err == nil && mode == "leader" {
			return i, nil
		}
	}
	return 0, errors.New("no leader")
}

// exclusive calls f with a session that no other call uses meanwhile, so that a caller's
// requests do not wait for those of another: a session's requests are answered in order.
func (g *zooKeeperGroup) exclusive(ctx context.Context, member int, f func(*zk.Conn) error) error {
	c, err := g.take(ctx, member)
	if err != nil {
		return err
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.idle[member] = append(g.idle[member], c)
	}()
	return f(c)
}

func (g *zooKeeperGroup) take(ctx context.Context, member int) (*zk.Conn, error) {
	g.mu.Lock()
	idle := g.idle[member]
	n := len(idle) - 1
	if n < 0 {
		g.mu.Unlock()
		return g.connect(ctx, member)
	}
	c := idle[n] // before the unlock: the next call to end overwrites it
	g.idle[member] = idle[:n]
	g.mu.Unlock()
	return c, nil
}

// put creates the node if it does not exist, which only the first put of a key finds.
func (g *zooKeeperGroup) put(ctx context.Context, member int, key string, value []byte) error {
	return g.exclusive(ctx, member, func(c *zk.Conn) error {
		_, err := c.Set("/"+key, value, -1)
		if errors.Is(err, zk.ErrNoNode) {
			_, err = c.Create("/"+key, value, 0, zk.WorldACL(zk.PermAll))
		}
		return err
	})
}

// get is the most that ZooKeeper offers: no quorum confirms the Sync, so a former leader may
// answer it with an old value (ZOOKEEPER-1675).
func (g *zooKeeperGroup) get(ctx context.Context, member int, key string) error {
	return g.exclusive(ctx, member, func(c *zk.Conn) error {
		if _, err := c.Sync("/" + key); err != nil {
			return err
		}
		_, _, err := c.Get("/" + key)
		return err
	})
}

func (g *zooKeeperGroup) watch(ctx context.Context, member int, key string, seen func(string)) error {
	c, err := g.connect(ctx, member)
	if err != nil {
		return err
	}
	if _, err := c.Sync("/" + key); err != nil { // the node may be too new for a follower
		return err
	}
	_, _, changed, err := c.GetW("/" + key)
	if err != nil {
		return err
	}
	go func() {
		for {
			select {
			case e := <-changed:
				if e.Err != nil {
					return // the group is closed
				}
			case <-ctx.Done():
				return
			}
			var value []byte
			if value, _, changed, err = c.GetW("/" + key); err != nil {
				return
			}
			seen(string(value))
		}
	}()
	return nil
}

func (g *zooKeeperGroup) sessions(ctx context.Context, member, n int) error {
	for range n {
		if _, err := g.connect(ctx, member); err != nil {
			return err
		}
	}
	return nil
}

func (g *zooKeeperGroup) kill(member int) { g.servers[member].kill() }

// close ends the sessions first: a client whose server is gone would try to connect again,
// at the cost of what is measured next.
func (g *zooKeeperGroup) close() {
	var wg sync.WaitGroup
	for _, c := range g.all {
		wg.Go(c.Close)
	}
	wg.Wait()
	for _, s := range g.servers {
		s.kill()
	}
}
