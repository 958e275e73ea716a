package fact

import (
	"cmp"
	"slices"
)

// Directory is the further groups that the default group has. It is never changed.
type Directory struct {
	Created uint32         // how many were ever created: the last one's number
	Groups  []*GroupRecord // by number
}

// Has reports whether a group exists.
func (d *Directory) Has(number uint32) bool { return d.Group(number) != nil }

// Group returns a group, nil if there is none of that number.
func (d *Directory) Group(number uint32) *GroupRecord {
	at, found := slices.BinarySearchFunc(d.Groups, number, func(g *GroupRecord, n uint32) int { return cmp.Compare(g.Number, n) })
	if !found {
		return nil
	}
	return d.Groups[at]
}

// Dropped reports whether there was a group of that number, and it has been deleted.
func (d *Directory) Dropped(number uint32) bool { return number <= d.Created && !d.Has(number) }

// GroupRecord is a further group: what it is called, and all that it begins with. It is never changed.
type GroupRecord struct {
	Number  uint32
	Name    string
	Created uint64 // index of its creation, in the default group
	Level   uint32 // feature level
	Epoch   uint32 // high bits of its fences
	Fences  uint64 // granted before
	Wanted  uint32 // voters, by the settings

	Voters, Standbys []uint64 // ascending
	Members          []MemberRecord
}

// Seeding is what the state of a new group depends on, besides that of the old one.
type Seeding struct {
	First MemberRecord             // the new group's first member
	Keep  func(number uint32) bool // of the default group: whether a further group is kept; nil: none is
	// Default has the state of a further group become that of the default one of a cluster of its own.
	Default bool
}

// Following is what a further group has of the default one. It is never changed.
type Following struct {
	Group  uint32 // number
	Index  uint64 // of the default group, as of which it follows that
	Voters []uint64
	Sealed bool   // it is being deleted
	Fences uint64 // with Sealed: granted so far
}
