package main

import "context"

// start starts a group of three members with data in a directory.
type start func(ctx context.Context, dir string) (group, error)

// system is a column of the table.
type system struct {
	name  string
	start start
	// ceiling starts the same members with an empty machine. nil: there is none.
	ceiling start
}

const (
	disk     = "conclave"
	inMemory = "memory"
	peer     = "etcd"
)

// systems returns the columns, conclave's first. The ratio is that of the first to etcd's.
func systems(o options) []system {
	s := []system{conclaveSystem(disk, false)}
	if o.memory {
		s = append(s, conclaveSystem(inMemory, true))
	}
	if o.peer {
		s = append(s, system{name: peer, start: startEtcd})
	}
	return s
}

func conclaveSystem(name string, memory bool) system {
	return system{
		name:    name,
		start:   func(ctx context.Context, dir string) (group, error) { return startConclave(ctx, dir, memory) },
		ceiling: func(ctx context.Context, dir string) (group, error) { return startCeiling(ctx, dir, memory) },
	}
}

// on returns what starts a group of a system for the workload; nil: the workload does not run on it.
func (w workload) on(s system) start {
	switch {
	case w.ceiling:
		return s.ceiling
	case w.alone && s.name == peer:
		return nil
	}
	return s.start
}
