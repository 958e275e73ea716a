package tickets

import "github.com/conclave-go/conclave/internal/budget"

// leastCallBytes is what the calls of each group may have in any case, where several share a budget.
const leastCallBytes = 1 << 20

// NewBudget returns what the calls of several groups in one process share, each of which may have maxBytes by itself; 0: no limit. One
// alone gets that.
func NewBudget(maxBytes int) *budget.Budget {
	if maxBytes == 0 {
		return nil
	}
	return budget.New(2*int64(maxBytes), leastCallBytes)
}

// Backlog is the calls of this process without an outcome, and the bytes of those that are
// not urgent.
type Backlog struct{ Calls, Bytes int }

// Admits reports whether a further call, which is not urgent, is within the limits;
// maxBytes 0: no limit. size is of its command. One call is admitted however large it is.
func (b Backlog) Admits(size, maxCalls, maxBytes int) bool {
	return b.Calls < maxCalls && (maxBytes == 0 || b.Bytes == 0 || b.Bytes+size+callOverhead <= maxBytes)
}

// With returns the backlog with a further call, which is not urgent.
func (b Backlog) With(size int) Backlog { return Backlog{b.Calls + 1, b.Bytes + size + callOverhead} }

// Without undoes With.
func (b Backlog) Without(size int) Backlog {
	return Backlog{b.Calls - 1, b.Bytes - size - callOverhead}
}
