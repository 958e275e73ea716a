package sim

import (
	"cmp"
	"slices"
)

// orderSearch looks for an order of the operations on one object that a model accepts, as porcupine does, and finds one sooner in
// histories with many operations without an outcome: it guesses the effect of such an operation only where what others were
// replied asks for one, and tries orders with few guesses first. It puts an operation into the order no earlier than at the
// return of the first one that comes after it (Lowe, Testing for linearizability, 2017).
//
// It shows only that there is an order, which verify checks. Without one, porcupine decides.
type orderSearch[S any] struct {
	model   stateModel[S]
	ops     []*operation // by their returns
	open    [][]int32    // by operation: those that were called before its return, and return later
	slots   []int32      // by operation: its bit in a slotSet; operations that overlap have different ones
	guessed []slotSet    // by operation: of it and of those open, the ones without an outcome
	above   []uint64     // by operation: see aboveAll
	states  []S
	byHash  map[uint64][]int32
	steps   map[transition][]int32
	visited map[configuration][]slotSet
	nodes   []orderNode
	queue   [][]int32 // nodes to expand, by rank
}

// orderNode is the beginning of an order.
type orderNode struct {
	next    int32 // the first operation, by returns, that is not in it
	state   int32 // after it
	parent  int32 // node without its last operation; -1: it is empty
	op      int32 // its last operation
	guesses int32
	early   slotSet // those in it that return after next
}

// transition is a step; in time: at the operation's return.
type transition struct {
	state, op int32
	inTime    bool
}

// configuration is what decides how an order can go on, but for the guesses among early.
type configuration struct {
	next, state int32
	early       slotSet
}

// mostSteps is how many nodes a search expands before it is given up, mostStates how many states it may know by then, and guessCost
// how many operations further an order has to be to be tried before one with a guess less.
const (
	mostSteps  = 4000
	mostStates = 4000
	guessCost  = 4
)

// newOrderSearch returns nil if too many operations overlap.
func newOrderSearch[S any](m stateModel[S], ops []*operation) *orderSearch[S] {
	s := &orderSearch[S]{
		model: m, ops: slices.Clone(ops), byHash: make(map[uint64][]int32), steps: make(map[transition][]int32),
		visited: make(map[configuration][]slotSet),
	}
	slices.SortStableFunc(s.ops, func(a, b *operation) int {
		return cmp.Or(cmp.Compare(a.returnedAt, b.returnedAt), cmp.Compare(a.invokedAt, b.invokedAt))
	})
	for i, op := range s.ops {
		var used slotSet
		for j, earlier := range s.ops[:i] {
			if earlier.returnedAt > op.invokedAt {
				used = used.with(s.slots[j])
			}
		}
		slot := used.firstFree()
		if slot < 0 {
			return nil
		}
		s.slots, s.above = append(s.slots, slot), append(s.above, op.aboveAll())
	}
	for i, op := range s.ops {
		var open []int32
		var guessed slotSet
		for j := i; j < len(s.ops); j++ {
			if s.ops[j].invokedAt >= op.returnedAt {
				continue
			}
			if j > i {
				open = append(open, int32(j))
			}
			if s.isGuess(int32(j)) {
				guessed = guessed.with(s.slots[j])
			}
		}
		slices.SortFunc(open, func(a, b int32) int { return cmp.Compare(s.ops[a].invokedAt, s.ops[b].invokedAt) })
		s.open, s.guessed = append(s.open, open), append(s.guessed, guessed)
	}
	return s
}

// isGuess reports whether the operation has no outcome: it may have had an effect.
func (s *orderSearch[S]) isGuess(op int32) bool {
	return s.ops[op].reply == nil && s.ops[op].readKey == ""
}

// placed is an operation in an order, and the state in which it leaves the object.
type placed[S any] struct {
	op    *operation
	after S
}

// run returns an order, or nil if it has found none.
func (s *orderSearch[S]) run() []placed[S] {
	s.push(orderNode{state: s.intern(s.model.init), parent: -1})
	for range mostSteps {
		rank := len(s.queue) - 1
		for ; rank >= 0 && len(s.queue[rank]) == 0; rank-- {
		}
		if rank < 0 || len(s.states) > mostStates {
			return nil
		}
		last := len(s.queue[rank]) - 1
		at := s.queue[rank][last]
		s.queue[rank] = s.queue[rank][:last]
		if int(s.nodes[at].next) == len(s.ops) {
			return s.orderOf(at)
		}
		s.expand(at)
	}
	return nil
}

func (s *orderSearch[S]) orderOf(at int32) []placed[S] {
	order := []placed[S]{}
	for ; s.nodes[at].parent >= 0; at = s.nodes[at].parent {
		order = append(order, placed[S]{s.ops[s.nodes[at].op], s.states[s.nodes[at].state]})
	}
	slices.Reverse(order)
	return order
}

// expand adds the orders with one operation more. The last ones added are tried first.
func (s *orderSearch[S]) expand(at int32) {
	n := s.nodes[at]
	for _, op := range s.open[n.next] {
		if n.early.has(s.slots[op]) {
			continue
		}
		for _, after := range s.step(transition{n.state, op, false}) {
			more := orderNode{n.next, after, at, op, n.guesses, n.early.with(s.slots[op])}
			if s.isGuess(op) {
				more.guesses++
			}
			s.push(more)
		}
	}
	for _, after := range slices.Backward(s.step(transition{n.state, n.next, true})) {
		s.push(orderNode{n.next + 1, after, at, n.next, n.guesses, n.early})
	}
}

// push queues a node unless a known one can be continued by all that follows it: one without some of its guesses.
func (s *orderSearch[S]) push(n orderNode) {
	for int(n.next) < len(s.ops) && n.early.has(s.slots[n.next]) {
		n.early = n.early.without(slotSet{}.with(s.slots[n.next]))
		n.next++
	}
	if int(n.next) < len(s.ops) {
		if s.isDead(n) {
			return
		}
		others := n.early.without(s.guessed[n.next])
		guesses, at := n.early.without(others), configuration{n.next, n.state, others}
		if slices.ContainsFunc(s.visited[at], func(known slotSet) bool { return known.within(guesses) }) {
			return
		}
		s.visited[at] = append(slices.DeleteFunc(s.visited[at], guesses.within), guesses)
	}
	rank := int(n.next) + guessCost*(len(s.ops)-int(n.guesses))
	for len(s.queue) <= rank {
		s.queue = append(s.queue, nil)
	}
	s.queue[rank] = append(s.queue[rank], int32(len(s.nodes)))
	s.nodes = append(s.nodes, n)
}

// isDead reports whether an operation has yet to come whose fence is not above all before.
func (s *orderSearch[S]) isDead(n orderNode) bool {
	largest := s.model.largest(s.states[n.state])
	for op := int(n.next); op < len(s.ops); op++ {
		early := s.ops[op].invokedAt < s.ops[n.next].returnedAt && n.early.has(s.slots[op])
		if above := s.above[op]; above != 0 && above <= largest && !early {
			return true
		}
	}
	return false
}

// step returns the states after an operation. One without an outcome has an effect if it is not at its return: else it can as
// well come later.
func (s *orderSearch[S]) step(t transition) []int32 {
	after, known := s.steps[t]
	if known {
		return after
	}
	for _, before := range s.model.before(s.states[t.state], s.ops[t.op]) {
		unchanged := int32(-1)
		if !t.inTime && s.isGuess(t.op) {
			unchanged = s.intern(before)
		}
		for _, st := range s.model.step(before, s.ops[t.op]) {
			if id := s.intern(st); id != unchanged && !slices.Contains(after, id) {
				after = append(after, id)
			}
		}
	}
	s.steps[t] = after
	return after
}

// intern returns the number of a state.
func (s *orderSearch[S]) intern(st S) int32 {
	h := s.model.hash(st)
	for _, id := range s.byHash[h] {
		if s.model.equal(s.states[id], st) {
			return id
		}
	}
	id := int32(len(s.states))
	s.states, s.byHash[h] = append(s.states, st), append(s.byHash[h], id)
	return id
}
