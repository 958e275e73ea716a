package main

import "context"

// start starts a group of three members with data in a directory.
type start func(ctx context.Context, dir string) (group, error)

// system is a column of the table.
type system struct {
	name  string
	start start
}

const (
	disk     = "conclave"
	ceiling  = "ceiling"
	inMemory = "memory"
	peer     = "etcd"
)

// systems returns the columns, conclave's first. The ratio is that of the first to etcd's.
func systems(o options) []system {
	s := []system{conclaveSystem(disk, false)}
	if o.ceiling {
		s = append(s, system{name: ceiling, start: startCeiling})
	}
	if o.memory {
		s = append(s, conclaveSystem(inMemory, true))
	}
	if o.peer {
		s = append(s, system{name: peer, start: startEtcd})
	}
	return s
}

func conclaveSystem(name string, memory bool) system {
	return system{name, func(ctx context.Context, dir string) (group, error) { return startConclave(ctx, dir, memory) }}
}

// on returns what starts a group of a system for the workload; nil: the workload does not run on it.
func (w workload) on(s system) start {
	if w.alone && s.name == peer || !w.cycles && s.name == ceiling {
		return nil
	}
	return s.start
}
