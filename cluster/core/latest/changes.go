// Package latest holds the last change of each key. It is a seam, not an API: only package core uses it.
package latest

import "github.com/conclave-go/conclave/internal/wire"

// Changes is the last change of each key of those that were put since the state on the disk.
//
// Invariant: the disk with the deletions and then the puts of Write is the state that the changes lead to. A
// change that says Created is trusted in one respect only, that the key was not in the state before
// its entry. So it is not on the disk if nothing of it has gathered, and then a deletion leaves nothing
// to write.
type Changes struct {
	list  []wire.Change // without a key: a free position. Created: the key is not on the disk
	free  []int         // positions in list
	keys  keyIndex      // of list
	bytes int
}

// Put notes a later change than those before.
func (g *Changes) Put(c *wire.Change) {
	slot, i := g.keys.find(c.Key, g.list)
	switch {
	case i < 0 && c.Created && c.Value == nil: // it came and went
	case i < 0:
		g.bytes += len(c.Key) + len(c.Value)
		g.keys.insert(slot, g.store(c))
	case g.list[i].Created && c.Value == nil:
		g.bytes -= len(c.Key) + len(g.list[i].Value)
		g.list[i] = wire.Change{}
		g.free = append(g.free, i)
		g.keys.remove(slot)
	default:
		g.bytes += len(c.Value) - len(g.list[i].Value)
		g.list[i].Value = c.Value
	}
}

// store stores the first change of a key, and returns its position.
func (g *Changes) store(c *wire.Change) (position int) {
	if n := len(g.free); n > 0 {
		position, g.free = g.free[n-1], g.free[:n-1]
		g.list[position] = *c
		return position
	}
	g.list = append(g.list, *c)
	return len(g.list) - 1
}

// Bytes is the size of the keys and values.
func (g *Changes) Bytes() int { return g.bytes }

// Write returns what has to be written, in this order: the deletions, then the puts.
func (g *Changes) Write() []wire.Change {
	changes := make([]wire.Change, 0, len(g.list)-len(g.free))
	for _, c := range g.list {
		if c.Key != nil && c.Value == nil {
			changes = append(changes, c)
		}
	}
	for _, c := range g.list {
		if c.Value != nil {
			changes = append(changes, c)
		}
	}
	return changes
}
