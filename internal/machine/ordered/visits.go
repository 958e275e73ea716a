// Package ordered has the collections that the machine keeps its state in: a heap
// and a list whose elements know their positions, trees, and an index by name.
// All count the elements that they look at.
package ordered

// Visits counts the elements that collections look at. A test measures by it how
// the work of each command grows with the state: time would depend on the computer.
type Visits struct{ n uint64 }

// Count counts one element.
func (v *Visits) Count() { v.n++ }

// Total returns how many have been counted.
func (v *Visits) Total() uint64 { return v.n }
