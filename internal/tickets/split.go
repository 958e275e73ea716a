package tickets

import (
	"iter"

	"github.com/conclave-go/conclave/internal/wire"
)

// MaxSubmission bounds the bytes of the commands of one submission, unless there is only one:
// several submissions fit into an entry.
const MaxSubmission = 256 << 10

// Split divides calls into submissions.
func Split(calls []*wire.Call) iter.Seq[[]*wire.Call] {
	return func(yield func([]*wire.Call) bool) {
		for len(calls) > 0 {
			n, size := 0, 0
			for n < len(calls) && (n == 0 || size+len(calls[n].GetCommand()) <= MaxSubmission) {
				size += len(calls[n].GetCommand())
				n++
			}
			if !yield(calls[:n:n]) {
				return
			}
			calls = calls[n:]
		}
	}
}
