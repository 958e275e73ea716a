package tickets

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
