package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// start starts a group of three members with data in a directory.
type start func(ctx context.Context, dir string) (group, error)

// system is a column of the table.
type system struct {
	name    string
	start   start
	peer    bool          // conclave is compared with it
	outside bool          // its members are other processes
	single  bool          // its locks are exclusive ones, and each caller takes one
	warm    time.Duration // of its callers' operations, before the first turn
}

const (
	disk     = "conclave"
	ceiling  = "ceiling"
	inMemory = "memory"
)

// systems returns the columns, conclave's first. The ratio is that of the first to the peer's.
func systems(o options) ([]system, error) {
	s := []system{conclaveSystem(disk, false)}
	if o.ceiling {
		s = append(s, system{name: ceiling, start: startCeiling})
	}
	if o.memory {
		s = append(s, conclaveSystem(inMemory, true))
	}
	peer := system{name: o.peer, peer: true}
	switch o.peer {
	case "none":
		return s, nil
	case "etcd":
		peer.start = startEtcd
	case "zookeeper":
		peer.start, peer.outside, peer.single, peer.warm = startZooKeeper, true, true, o.warm
	case "consul-recipe":
		return nil, errors.New("-peer consul-recipe: not built in: Debian 12 has no package of Consul to test it with")
	default:
		return nil, fmt.Errorf("-peer %q: want etcd, zookeeper or none", o.peer)
	}
	return append(s, peer), nil
}

func conclaveSystem(name string, memory bool) system {
	return system{name: name, start: func(ctx context.Context, dir string) (group, error) { return startConclave(ctx, dir, memory) }}
}

// peerOf returns the name of the peer; "" without one.
func peerOf(systems []system) string {
	i := slices.IndexFunc(systems, func(s system) bool { return s.peer })
	if i < 0 {
		return ""
	}
	return systems[i].name
}

// on returns what starts a group of a system for the workload; nil: the workload does not run on it.
func (w workload) on(s system) start {
	if w.alone && s.peer || (w.both || w.several) && s.single || !w.cycles && s.name == ceiling {
		return nil
	}
	return s.start
}
