package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	zooKeeperTTL = 10 * time.Second // as etcd's sessions

	// By default a connection has two buffers of 1.5 MiB, which would make the heap of this
	// process larger and so conclave's garbage collections rarer. The longest answer is the
	// list of 1,000 waiters, 55 bytes each.
	zooKeeperSendBuffer    = 4 << 10
	zooKeeperReceiveBuffer = 64 << 10
)

// silent drops what the client logs of connections, which the servers' end breaks.
type silent struct{}

func (silent) Printf(string, ...any) {}

// connect opens a session on a member's server. It connects to no other server, as a caller
// belongs to its member. If the server drops it, as in an election, the library waits for a
// second before it connects again.
func (g *zooKeeperGroup) connect(ctx context.Context, member int) (*zk.Conn, error) {
	c, events, err := zk.Connect([]string{g.servers[member].address}, zooKeeperTTL, zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithMaxConnBufferSize(zooKeeperSendBuffer), zk.WithMaxBufferSize(zooKeeperReceiveBuffer))
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.all = append(g.all, c)
	g.mu.Unlock()
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return c, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// zooKeeperLock is the client library's recipe: an ephemeral sequential node for each
// attempt, which waits for the deletion of the one before it.
type zooKeeperLock struct {
	recipe *zk.Lock
	conn   *zk.Conn
	path   string
	failed bool // an attempt may have left a node
}

func (g *zooKeeperGroup) lock(ctx context.Context, member int, name string, _ bool) (lock, error) {
	c, err := g.connect(ctx, member)
	if err != nil {
		return nil, err
	}
	path := "/" + name
	return &zooKeeperLock{recipe: zk.NewLock(c, path, zk.WorldACL(zk.PermAll)), conn: c, path: path}, nil
}

// lock closes the session if ctx ends meanwhile, as the library's calls have no context.
func (l *zooKeeperLock) lock(ctx context.Context) error {
	stop := context.AfterFunc(ctx, l.conn.Close)
	defer stop()
	if l.failed {
		if err := l.clear(); err != nil {
			return err
		}
	}
	err := l.recipe.Lock()
	l.failed = err != nil
	return err
}

func (l *zooKeeperLock) unlock(context.Context) error { return l.recipe.Unlock() }

// clear deletes the nodes of failed attempts, behind which the next one would wait until the
// session ends. A node may exist although the answer to its creation was lost: the recipe
// demands to look for it then, which the library gives up if it cannot do so at once.
func (l *zooKeeperLock) clear() error {
	names, _, err := l.conn.Children(l.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		node := l.path + "/" + name
		_, stat, err := l.conn.Get(node)
		if err == nil && stat.EphemeralOwner == l.conn.SessionID() {
			err = l.conn.Delete(node, -1)
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}
