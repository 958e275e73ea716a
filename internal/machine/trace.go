package machine

import (
	"bytes"

	"github.com/conclave-go/conclave/internal/wire"
)

// An Unlock or a Release may carry a trace, bytes that identify its caller's span. A request
// that was queued gets with its grant the trace of the release that caused it. Traces began
// with a feature level: below it one means nothing. One that is too long means nothing either,
// as to refuse a release would leak what it releases.

// traceOf returns the trace of a release; nil: none. Its memory is the decoder's.
func (m *Machine) traceOf(trace []byte) []byte {
	if len(trace) == 0 || len(trace) > MaxTrace || m.levels.agreed < wire.LevelTrace {
		return nil
	}
	return trace
}

// caused adds the trace of the release that is being applied to a grant that it causes.
func (m *Machine) caused(grant *wire.Reply) *wire.Reply {
	grant.Trace = bytes.Clone(m.cause)
	return grant
}

// storedTrace returns the trace of the grant to a ticket, as long as its outcome is kept for
// a retry.
func (m *Machine) storedTrace(t wire.Ticket) []byte {
	if inc := m.incarnation(t.Incarnation); inc != nil {
		if stored := inc.window.at(t.Seq); stored != nil {
			return stored.reply().GetTrace()
		}
	}
	return nil
}
