package main

import "context"

// group is a running group of members. Members are numbered from 0.
type group interface {
	// leader returns the number of the member that leads.
	leader(ctx context.Context) (int, error)
	// lock returns a lock for one caller on a member. Each caller is an owner of its own.
	// With linger the member may keep the lock between two uses.
	lock(ctx context.Context, member int, name string, linger bool) (lock, error)
	close()
}

// service is a group that serves more than locks: of conclave or of a peer.
type service interface {
	group
	put(ctx context.Context, member int, key string, value []byte) error
	// get is a linearizable read.
	get(ctx context.Context, member int, key string) error
	// watch calls seen with the value of each change of a key that comes after it
	// returns, until ctx ends.
	watch(ctx context.Context, member int, key string, seen func(value string)) error
	// sessions opens that many sessions and keeps them alive.
	sessions(ctx context.Context, member, n int) error
	// kill stops a member as a crash does.
	kill(member int)
}

type lock interface {
	lock(ctx context.Context) error
	unlock(ctx context.Context) error
}

const members = 3
